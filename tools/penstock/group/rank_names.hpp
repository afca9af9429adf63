// Finds out which live sessions are ranks of one group: sessions of the same name in the same launch. Their notes name
// the rank; without a note, the session's name does: "photos-rank2" is rank 2 of "photos". Pure.
#pragma once

#include "runtime/control/socket_place.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

struct rank_name {
  std::string group;
  std::uint32_t rank = 0;
};
/// Empty for a session that is not a rank.
[[nodiscard]] std::optional<rank_name> parse_rank_name(std::string_view session);

struct named_session {
  std::string name;
  std::filesystem::path socket;
  std::optional<control::rank_note> rank{};
};
struct live_rank {
  std::uint32_t rank = 0;
  named_session session;
};
struct live_group {
  std::string name;
  std::string job;               ///< the launch, as its launcher calls it; empty: unknown
  std::vector<live_rank> ranks;  ///< live ranks, ascending

  /// The unambiguous name for --group: "launch-4711/photos".
  [[nodiscard]] std::string full_name() const { return job.empty() ? name : job + "/" + name; }
};
/// Sorted by name and job.
[[nodiscard]] std::vector<live_group> groups_among(const std::vector<named_session>& live);

/// The groups that --group may mean: all with this name, or the one with this full name. Several if two
/// launches of one file are live.
[[nodiscard]] std::vector<live_group> groups_named(const std::vector<live_group>& groups,
                                                   std::string_view name);

/// The group that a verb means if no session is named: several sessions are live, and all of them belong to it.
[[nodiscard]] std::optional<live_group> only_group(const std::vector<named_session>& live);

}  // namespace penstock::cli
