// The command that `penstock map --command` runs for each line of its input: a list of words in which {}
// stands for the line. The text is split once, by a subset of the shell's rules. No shell is involved: a line
// is never split or expanded, whatever bytes it contains. Pure.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

class command_template {
 public:
  /// Words are separated by blanks. '...' is literal; in "..." a backslash escapes one of " \ $ `. Elsewhere
  /// a backslash escapes the next character. Each {} is replaced by the item, even in quotes and within a word; \{} means literal braces.
  /// Without {} the item becomes the last word. Refuses (errc::usage) an empty command, an open quote, and unquoted characters with a
  /// meaning in a shell (| & ; < > ( ) $ ` * ? [, and ~ # at the start of a word): the program would receive them unchanged.
  static result<command_template> parse(std::string_view text);

  /// The words for one item: the program and its arguments.
  [[nodiscard]] std::vector<std::string> words_for(std::string_view item) const;
  /// The program, if it is the same for every item; otherwise empty.
  [[nodiscard]] std::string program() const;

 private:
  /// The item goes between each pair of these texts.
  using word = std::vector<std::string>;
  explicit command_template(std::vector<word> words) : words_(std::move(words)) {}

  std::vector<word> words_;
};

}  // namespace penstock::cli
