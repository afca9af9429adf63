// Words as a POSIX shell reads them, for commands that people paste or another shell runs.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// In single quotes, if a shell would otherwise read something else.
[[nodiscard]] std::string shell_word(std::string_view word);
/// Separated by spaces.
[[nodiscard]] std::string shell_words(std::span<const std::string> words);

}  // namespace penstock
