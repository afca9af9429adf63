// Replaces the stacks of dying workers in their output by one line: `penstock deaths --stacks` shows each once, with the names of functions.
// One for each process. Used by logs. Pure.
#pragma once

#include "runtime/process/stack_filter.hpp"

#include <string>
#include <utility>
#include <vector>

namespace penstock::cli {

class folded_stacks {
 public:
  /// `where`: the line that replaces a stack.
  explicit folded_stacks(std::string where) : where_(std::move(where)) {}

  /// The next line of the output. Returns the lines to print now.
  [[nodiscard]] std::vector<std::string> pass(const std::string& line) {
    std::vector<std::string> shown = filter_.pass(line);
    const bool in_stack = process::is_stack_line(line);
    if (in_stack && !in_stack_) shown.push_back(where_);
    in_stack_ = in_stack;
    return shown;
  }
  /// Lines that turned out not to be part of a stack: at the end of the output.
  [[nodiscard]] std::vector<std::string> rest() { return filter_.rest(); }

 private:
  std::string where_;
  process::stack_filter filter_;
  bool in_stack_ = false;
};

}  // namespace penstock::cli
