// Quotes words for a POSIX shell, in commands that people paste or that a remote shell runs.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// Puts the word in single quotes if a shell would otherwise change it.
[[nodiscard]] std::string shell_word(std::string_view word);
/// Like shell_word for each word; separates the words by spaces.
[[nodiscard]] std::string shell_words(std::span<const std::string> words);

}  // namespace penstock
