// What a session needs to join the group of its launcher: which rank it is, where the group meets, and what the ranks
// compare. Pure but for the environment, the secret's file and the host's name. Used when a session is made.
#pragma once

#include "runtime/dataset/order/plan.hpp"
#include "runtime/group/group_book.hpp"
#include "runtime/group/group_link.hpp"
#include "runtime/group/launcher_environment.hpp"
#include "runtime/group/member_book.hpp"
#include "runtime/schedule/ledger.hpp"

#include <penstock/config.hpp>
#include <penstock/session.hpp>

#include <cstdint>
#include <string>

namespace penstock::session {

/// Which rank a launcher made this process. Refuses (errc::config) where none has, naming what was looked for.
[[nodiscard]] result<group::launcher_place> place_of_this_process();

/// The settings of a session that joins as this rank: rank and world size are the launcher's; the name has the rank, and
/// the metrics have the rank's port. Refuses (errc::config) a rank or world size in the settings that says something else.
[[nodiscard]] result<config> settings_as_rank(config settings, const group::launcher_place& place);

/// The options of a session that joins as this rank: its sink has the rank's file or folder.
[[nodiscard]] session_options options_as_rank(session_options options, const group::launcher_place& place);

/// Of a session that joins no group. Refuses (errc::config) a communicator: nobody would ever make it.
[[nodiscard]] result<void> check_alone(const config& settings);

struct group_membership {
  std::string name;  ///< of the group: its job and the session's name without the rank
  group::link_settings links;
  group::member_settings member;  ///< without the device
  group::group_settings group;    ///< for rank 0
};
/// Refuses (errc::config) what address_of and secret_of_links refuse.
[[nodiscard]] result<group_membership> membership_of(const config& settings, const session_options& options,
                                                     const group::launcher_place& place);

/// Where the stream begins, the same number in all ranks that are at one step.
[[nodiscard]] group::stream_facts facts_of(const std::string& fingerprint, const plan& order,
                                           schedule::stream_range range);

}  // namespace penstock::session
