// Keeps the stack of a dying process out of the session's own log and out of `penstock logs`: a death is one line there, and
// `penstock deaths --stacks` shows the frames. One for each process; used by the session's process_logs and by folded_stacks. Pure.
//
// A worker that runs Python writes Python's frames just before the native ones. If no native frames follow,
// the text is a dump that the program asked for (faulthandler.dump_traceback). Such a dump is logged before
// the process's next line, or when the process ends.
#pragma once

#include "runtime/process/crash_notes.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::process {

class stack_filter {
 public:
  /// The next line of the process's output. Returns what may be logged now, in order.
  [[nodiscard]] std::vector<std::string> pass(std::string_view line) {
    if (is_stack_line(line)) {
      held_.clear();
      return {};
    }
    std::vector<std::string> passed;
    const bool continues = !held_.empty() && line.starts_with("  ") && held_.size() < held_max;
    if (!continues) passed = rest();
    (continues || line == python_stack_begin ? held_ : passed).emplace_back(line);
    return passed;
  }

  /// Call when the process has ended. Returns held lines, which turned out not to be part of its stack.
  [[nodiscard]] std::vector<std::string> rest() { return std::exchange(held_, {}); }

 private:
  static constexpr std::size_t held_max = 128;  // Python writes at most 100 frames of a thread

  std::vector<std::string> held_;
};

}  // namespace penstock::process
