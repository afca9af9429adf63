// Which live sessions are ranks of one group, by their names: "photos-rank2" is rank 2 of "photos". Pure.
#pragma once

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
/// Nothing for a session that is no rank.
[[nodiscard]] std::optional<rank_name> parse_rank_name(std::string_view session);

struct named_session {
  std::string name;
  std::filesystem::path socket;
};
struct live_rank {
  std::uint32_t rank = 0;
  named_session session;
};
struct live_group {
  std::string name;
  std::vector<live_rank> ranks;  ///< those that live, ascending
};
/// By name.
[[nodiscard]] std::vector<live_group> groups_among(const std::vector<named_session>& live);

/// The group that a verb without a name means: there are several sessions, and all of them belong to it.
[[nodiscard]] std::optional<live_group> only_group(const std::vector<named_session>& live);

}  // namespace penstock::cli
