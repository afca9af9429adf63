// Appends lines to a file so that a full disk or a crash leaves none of them garbled. Used for every file of lines that
// is only appended to: the journal sink, the journal and the job log of `penstock map`, the quarantine.
#pragma once

#include "runtime/base/fd.hpp"

#include <cstdint>
#include <string_view>

namespace penstock {

/// Not thread-safe. Several processes may append to one file.
class line_file {
 public:
  /// `file`: opened with O_APPEND. If it is open for reading too, and ends in the middle of a line that a crash cut off,
  /// the first append ends that line.
  explicit line_file(unique_fd file);

  /// Appends whole lines, each with its line feed. Returns 0, or the errno of the write that failed (ENOSPC, EDQUOT, EFBIG):
  /// what had been written of these lines is removed again. Where that is not possible, because others have appended since
  /// or it is a pipe, the next append ends the half line first. Blocks as write_all() does.
  [[nodiscard]] int append(std::string_view lines);

  /// Keeps only the first bytes, which have to be whole lines. Returns 0 or an errno.
  [[nodiscard]] int cut(std::uint64_t bytes);

  [[nodiscard]] int fd() const noexcept { return file_.get(); }

 private:
  [[nodiscard]] bool take_back(std::string_view written) const;

  unique_fd file_;
  bool in_mid_line_ = false;
};

}  // namespace penstock
