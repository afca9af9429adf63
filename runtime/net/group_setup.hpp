// What a process needs to be a rank of a group: its links, the settings of its drivers and the facts that the ranks compare.
// Used by sessions (actors/session) and by programs (runtime/program_group). Pure, except that it reads the environment, the
// secret's file and the host's name.
#pragma once

#include "runtime/base/launcher_environment.hpp"
#include "runtime/group/group_book.hpp"
#include "runtime/group/member_book.hpp"
#include "runtime/net/links.hpp"

#include <penstock/config.hpp>

#include <string>

namespace penstock::group {

struct group_setup {
  link_settings links;
  member_settings member;  ///< the card still lacks the device and the settings
  group_settings group;    ///< used by rank 0 only
};

/// `name`: equal for all ranks; the job's name is appended. Fails (errc::config) in the cases in which
/// address_of or secret_of_links does.
[[nodiscard]] result<group_setup> setup_of(const group_config& settings, const launcher_place& place,
                                           const std::string& name);

}  // namespace penstock::group
