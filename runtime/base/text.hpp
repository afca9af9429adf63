// Makes untrusted bytes safe to show: file names need not be UTF-8, and messages may be arbitrarily long.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace penstock {

/// Keeps valid UTF-8; writes every other byte and every control character as \xNN. The result is safe in a
/// terminal, in JSON and on one line.
std::string printable(std::string_view raw);

/// Cuts the text to at most `limit` bytes, between characters, with "..." for the missing part.
std::string shortened(std::string_view text, std::size_t limit);

/// The candidate closest to `word` by Damerau-Levenshtein distance, if the distance is at most max(1, length
/// / 3); else empty.
template <class Range>
std::string_view nearest_name(std::string_view word, const Range& candidates);

/// The number of edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
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
