// Which end of a worker or GPU owner metrics name as the last death, of a running session and of an ended one.
#pragma once

#include <penstock/report.hpp>

#include <iterator>
#include <string_view>

namespace penstock {

/// Processes that were asked to stop, whose work was cancelled, or that were lost with their host have not died. `cause`: the word
/// for a death_cause; a word of a newer version is a death.
[[nodiscard]] inline bool counts_as_death(std::string_view cause) noexcept {
  return cause != name_of(death_cause::stopped) && cause != name_of(death_cause::cancelled) && cause != name_of(death_cause::host);
}

/// The last of these ends, in the order of time, that counts as a death; null if none does. `cause_of`: gives the word for an end's cause.
template <class Ends, class CauseOf>
[[nodiscard]] const typename Ends::value_type* last_death(const Ends& ends, CauseOf cause_of) {
  for (auto end = std::rbegin(ends); end != std::rend(ends); ++end) {
    if (counts_as_death(cause_of(*end))) return &*end;
  }
  return nullptr;
}

}  // namespace penstock
