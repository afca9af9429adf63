// Who paused or resumed a session. Set by the code that passes the request on; status, why and events show it in words.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace penstock {

enum class pauser : std::uint8_t {
  operator_,
  program,   ///< the program that embeds the session
  headroom,  ///< `penstock headroom`, in whose process the session runs
  group,     ///< the session's group, which only resumes
};

inline constexpr std::array pausers_in_words{
    std::pair{pauser::operator_, std::string_view("`penstock pause`")},
    std::pair{pauser::program, std::string_view("the program")},
    std::pair{pauser::headroom, std::string_view("`penstock headroom`, for its own measurement")},
    std::pair{pauser::group, std::string_view("its group, which is stopping")},
};

/// The text of `paused_by` in status.
[[nodiscard]] constexpr std::string_view words_of(pauser who) {
  return std::ranges::find(pausers_in_words, who, [](const auto& one) { return one.first; })->second;
}
/// The reverse. Empty if another version wrote the text.
[[nodiscard]] constexpr std::optional<pauser> pauser_of(std::string_view words) {
  const auto* const found = std::ranges::find(pausers_in_words, words, [](const auto& one) { return one.second; });
  return found == pausers_in_words.end() ? std::nullopt : std::optional(found->first);
}

}  // namespace penstock
