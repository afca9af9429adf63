#include "runtime/schedule/group_state.hpp"

#include "runtime/base/counted.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace penstock::schedule {
namespace {

std::uint64_t position_of(const stream_state& s) {
  return s.start + s.next_batch * s.identity.batch_size * s.identity.world_size;
}

std::string whose(const stream_state& s) {
  return s.identity.of_group ? std::string("a resumed run") : fmt::format("rank {}", s.identity.rank);
}

/// Compares the states as if they were of one rank. Any remaining difference means different streams.
result<void> check_one_stream(const stream_state& a, const stream_state& b) {
  stream_identity as_a = b.identity;
  as_a.rank = a.identity.rank;
  if (as_a.fingerprint.empty()) {  // taken before any worker had described the dataset
    as_a.fingerprint = a.identity.fingerprint;
    as_a.settings = a.identity.settings;
  }
  const bool layouts_differ = a.identity.of_group || b.identity.of_group;
  stream_identity of_a = a.identity;
  of_a.of_group = layouts_differ;
  if (auto ok = check_same_stream(of_a, as_a); !ok) {
    return refuse(errc::state_mismatch, "the states of {} and {} belong to different streams: {}", whose(a),
                  whose(b), ok.error().message);
  }
  if (a.epoch == b.epoch && position_of(a) == position_of(b)) return {};
  return refuse(errc::state_mismatch,
                "the ranks are not at the same step: {} is at position {} of epoch {}, but {} is at position "
                "{} of epoch {}",
                whose(a), position_of(a), a.epoch, whose(b), position_of(b), b.epoch);
}

/// Requires at least one state of a rank in `of_ranks`.
result<void> check_all_ranks_there(std::span<const stream_state> of_ranks, std::uint32_t world_size) {
  std::vector<std::uint32_t> ranks;
  for (const stream_state& s : of_ranks) {
    if (!s.identity.of_group) ranks.push_back(s.identity.rank);
  }
  std::ranges::sort(ranks);
  if (const auto twice = std::ranges::adjacent_find(ranks); twice != ranks.end())
    return refuse(errc::state_mismatch, "there are two states of rank {}", *twice);
  if (of_ranks.size() == world_size) return {};
  if (of_ranks.size() > world_size)
    return refuse(errc::state_mismatch, "there are {}, but the world has {} ranks",
                  counted(of_ranks.size(), "state"), world_size);
  std::uint32_t missing = 0;
  while (std::ranges::binary_search(ranks, missing)) ++missing;
  return refuse(errc::state_mismatch,
                "the state of rank {} is missing: there are {}, but the world has {} ranks", missing,
                counted(of_ranks.size(), "state"), world_size);
}

}  // namespace

result<stream_state> group_state(std::span<const stream_state> of_ranks) {
  if (of_ranks.empty()) return refuse(errc::state_mismatch, "there is no state of any rank");
  const auto own =
      std::ranges::find(of_ranks, false, [](const stream_state& s) { return s.identity.of_group; });
  const stream_state& first = own == of_ranks.end() ? of_ranks.front() : *own;
  for (const stream_state& s : of_ranks) {
    if (auto ok = check_one_stream(first, s); !ok) return tl::unexpected(std::move(ok.error()));
    if (s.early != 0) {
      return refuse(errc::state_mismatch,
                    "the state of {} counts {} delivered early (order = \"relaxed\"): only the same rank of "
                    "a group of the same size can continue from it",
                    whose(s),
                    counted(static_cast<std::uint64_t>(std::popcount(s.early)), "batch", "batches"));
    }
  }
  if (own != of_ranks.end()) {
    if (auto ok = check_all_ranks_there(of_ranks, first.identity.world_size); !ok)
      return tl::unexpected(std::move(ok.error()));
  }
  stream_state group;
  group.identity = first.identity;
  group.identity.rank = 0;
  group.identity.of_group = true;
  group.epoch = first.epoch;
  group.start = position_of(first);
  for (const stream_state& s : of_ranks) {
    if (group.identity.fingerprint.empty()) {
      group.identity.fingerprint = s.identity.fingerprint;
      group.identity.settings = s.identity.settings;
    }
    group.quarantined_samples.insert(group.quarantined_samples.end(), s.quarantined_samples.begin(),
                                     s.quarantined_samples.end());
  }
  std::ranges::sort(group.quarantined_samples);
  const auto repeats = std::ranges::unique(group.quarantined_samples);
  group.quarantined_samples.erase(repeats.begin(), repeats.end());
  return group;
}

result<stream_state> group_state_of_slowest(std::vector<stream_state> of_ranks) {
  const auto place = [](const stream_state& s) { return std::pair(s.epoch, position_of(s)); };
  const auto slowest = std::ranges::min_element(of_ranks, {}, place);
  if (slowest == of_ranks.end()) return group_state({});
  const auto [epoch, position] = place(*slowest);
  for (stream_state& s : of_ranks) {
    s.epoch = epoch;
    s.start = position;
    s.next_batch = 0;
    s.early = 0;
    s.early_digests.clear();
  }
  return group_state(of_ranks);
}

}  // namespace penstock::schedule
