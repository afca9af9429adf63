// Where the ranks of a group on one host share the listing of their dataset (rule S30). Used when a session starts.
#pragma once

#include "runtime/base/launcher_environment.hpp"
#include "runtime/net/group_setup.hpp"

#include <penstock/config.hpp>

#include <string>

namespace penstock::session {

/// The name at which they meet (runtime/process/shared_files.hpp). Ranks have the same name if they have the same job,
/// session, version and [dataset], and if the dataset's path leads them to the same file or folder. Empty if this rank
/// shares with no other: it is alone on its host, nothing distinguishes its job from others of this user, or nothing is
/// listed.
[[nodiscard]] std::string shared_listing_name(const config& settings, const group::group_setup& group, const launcher_place& place);

}  // namespace penstock::session
