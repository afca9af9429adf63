#include "tools/penstock/group/rank_names.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace penstock::cli {

std::optional<rank_name> parse_rank_name(std::string_view session) {
  constexpr std::string_view mark = "-rank";
  const std::size_t at = session.rfind(mark);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view digits = session.substr(at + mark.size());
  std::uint32_t rank = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, status] = std::from_chars(digits.data(), end, rank);
  if (status != std::errc{} || rest != end) return std::nullopt;
  return rank_name{std::string(session.substr(0, at)), rank};
}

std::vector<live_group> groups_among(const std::vector<named_session>& live) {
  std::map<std::string, live_group> found;
  for (const named_session& session : live) {
    const auto name = parse_rank_name(session.name);
    if (name) found[name->group].ranks.push_back({name->rank, session});
  }
  std::vector<live_group> groups;
  for (auto& [name, group] : found) {
    group.name = name;
    std::ranges::sort(group.ranks, {}, &live_rank::rank);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::optional<live_group> only_group(const std::vector<named_session>& live) {
  std::vector<live_group> groups = groups_among(live);
  if (live.size() < 2 || groups.size() != 1 || groups.front().ranks.size() != live.size())
    return std::nullopt;
  return std::move(groups.front());
}

}  // namespace penstock::cli
