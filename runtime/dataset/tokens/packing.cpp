#include "runtime/dataset/tokens/packing.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace penstock {

window_packing::window_packing(std::span<const std::uint32_t> lengths, std::uint32_t sequence_length)
    : sequence_length_(sequence_length) {
  std::vector<packed_piece> rests;
  rests.reserve(lengths.size());
  whole_ends_.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::uint32_t tokens = lengths[i] == 0 ? 0 : lengths[i] - 1;
    const std::uint32_t rest = tokens % sequence_length;
    tokens_ += tokens;
    whole_ += tokens / sequence_length;
    whole_ends_.push_back(whole_);
    if (rest > 0) rests.push_back({static_cast<std::uint32_t>(i), tokens - rest, rest});
  }
  if (whole_ > 0) parts_max_ = 1;
  share(std::move(rests));
}

void window_packing::share(std::vector<packed_piece> rests) {
  std::ranges::stable_sort(rests, std::greater(), &packed_piece::tokens);
  std::vector<placed> all;
  all.reserve(rests.size());
  std::set<std::pair<std::uint32_t, std::uint32_t>> room;  // (free places, sequence), sorted by free places
  std::uint32_t opened = 0;
  for (const packed_piece& rest : rests) {
    const auto found = room.lower_bound({rest.tokens, 0});
    const auto [left, sequence] = found == room.end() ? std::pair{sequence_length_, opened++} : *found;
    if (found != room.end()) room.erase(found);
    if (left > rest.tokens) room.emplace(left - rest.tokens, sequence);
    all.push_back({sequence, rest});
  }
  shared_ = opened;
  std::ranges::stable_sort(all, {}, &placed::sequence);
  std::vector<bool> padded(opened);
  for (const auto& [left, sequence] : room) padded[sequence] = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    shared_pieces_.push_back(all[i].piece);
    if (i + 1 < all.size() && all[i + 1].sequence == all[i].sequence) continue;
    const auto begin = shared_ends_.empty() ? 0 : shared_ends_.back();
    const auto end = static_cast<std::uint32_t>(shared_pieces_.size());
    parts_max_ = std::max(parts_max_, end - begin + (padded[all[i].sequence] ? 1U : 0U));
    shared_ends_.push_back(end);
  }
}

std::span<const packed_piece> window_packing::pieces(std::uint64_t sequence) {
  PENSTOCK_CHECK(sequence < sequences(), "sequence {} of {}", sequence, sequences());
  if (sequence < shared_) {
    const std::size_t begin = sequence == 0 ? 0 : shared_ends_[sequence - 1];
    return std::span(shared_pieces_).subspan(begin, shared_ends_[sequence] - begin);
  }
  sequence -= shared_;
  const auto document = static_cast<std::size_t>(std::ranges::upper_bound(whole_ends_, sequence) - whole_ends_.begin());
  const std::uint64_t before = document == 0 ? 0 : whole_ends_[document - 1];
  one_ = {static_cast<std::uint32_t>(document), static_cast<std::uint32_t>((sequence - before) * sequence_length_),
          sequence_length_};
  return std::span(&one_, 1);
}

}  // namespace penstock
