// Appends lines to a file so that neither a full disk nor a crash leaves a garbled line. Used for every append-only
// file of lines: the journal sink, the journal and the job log of `penstock map`, the quarantine.
#pragma once

#include "runtime/base/fd.hpp"

#include <cstdint>
#include <string_view>

namespace penstock {

/// Not thread-safe. Several processes may append to one file.
class line_file {
 public:
  /// `file` must be open with O_APPEND. If it is also readable and a crash left its last line incomplete, the
  /// first append ends that line.
  explicit line_file(unique_fd file);

  /// Appends whole lines, each with its line feed. Returns 0, or the errno of the failed write (ENOSPC,
  /// EDQUOT, EFBIG) after removing the part already written. If that part cannot be removed (others have
  /// appended since, or it is a pipe), the next append ends the incomplete line first. Blocks like
  /// write_all().
  [[nodiscard]] int append(std::string_view lines);

  /// Keeps only the first `bytes` bytes, which must be whole lines. Returns 0 or an errno.
  [[nodiscard]] int cut(std::uint64_t bytes);

  [[nodiscard]] int fd() const noexcept { return file_.get(); }

 private:
  [[nodiscard]] bool take_back(std::string_view written) const;

  unique_fd file_;
  bool in_mid_line_ = false;
};

}  // namespace penstock
