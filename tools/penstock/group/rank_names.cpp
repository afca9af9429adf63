#include "tools/penstock/group/rank_names.hpp"

#include "runtime/base/number.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace penstock::cli {

std::optional<rank_name> parse_rank_name(std::string_view session) {
  constexpr std::string_view mark = "-rank";
  const std::size_t at = session.rfind(mark);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const auto rank = whole_number<std::uint32_t>(session.substr(at + mark.size()));
  return rank ? std::optional(rank_name{std::string(session.substr(0, at)), *rank}) : std::nullopt;
}

std::vector<live_group> groups_among(const std::vector<named_session>& live) {
  std::map<std::pair<std::string, std::string>, live_group> found;
  for (const named_session& session : live) {
    const auto name = parse_rank_name(session.name);
    if (!session.rank && !name) continue;
    const control::rank_note of =
        session.rank ? *session.rank : control::rank_note{{}, name->group, name->rank};
    live_group& group = found[{of.group, of.job}];
    group.name = of.group;
    group.job = of.job;
    group.ranks.push_back({of.rank, session});
  }
  std::vector<live_group> groups;
  for (auto& [key, group] : found) {
    std::ranges::sort(group.ranks, {}, &live_rank::rank);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<live_group> groups_named(const std::vector<live_group>& groups, std::string_view name) {
  std::vector<live_group> meant;
  for (const live_group& group : groups) {
    if (!group.job.empty() && group.full_name() == name) return {group};
    if (group.name == name) meant.push_back(group);
  }
  return meant;
}

std::optional<live_group> only_group(const std::vector<named_session>& live) {
  std::vector<live_group> groups = groups_among(live);
  if (live.size() < 2 || groups.size() != 1 || groups.front().ranks.size() != live.size())
    return std::nullopt;
  return std::move(groups.front());
}

}  // namespace penstock::cli
