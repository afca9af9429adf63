// Showing bytes that came from outside to people: file names need not be UTF-8, messages need not end.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace penstock {

/// UTF-8 as it is; every byte that is not part of valid UTF-8, and every control character, as \xNN. The
/// result is safe in a terminal, in JSON and on one line.
std::string printable(std::string_view raw);

/// At most `limit` bytes, cut between characters, with "..." where something is missing.
std::string shortened(std::string_view text, std::size_t limit);

/// The candidate that is nearest to `word` by Damerau-Levenshtein distance, if it is near enough to be meant
/// (distance <= max(1, length / 3)); empty otherwise.
template <class Range>
std::string_view nearest_name(std::string_view word, const Range& candidates);

/// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
std::size_t edit_distance(std::string_view from, std::string_view to);

template <class Range>
std::string_view nearest_name(std::string_view word, const Range& candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace penstock
