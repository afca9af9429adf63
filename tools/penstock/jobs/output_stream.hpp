// Writes results to a descriptor whose reader may stop reading, as `less` does: another thread can end the wait.
#pragma once

#include "runtime/base/fd.hpp"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace penstock::cli {

/// write() is for one thread, give_up_after() for any.
class output_stream {
 public:
  /// `fd` outlives it. A pipe and a terminal are opened again, so that nobody else's descriptor becomes non-blocking.
  explicit output_stream(int fd);

  /// Writes all bytes, and waits for room. Returns 0, an errno, or ETIMEDOUT: give_up_after() was called, and the reader took
  /// nothing for that long.
  [[nodiscard]] int write(std::string_view text);

  /// A write makes no progress for this long: give it up, now and later.
  void give_up_after(std::chrono::milliseconds patience) noexcept;

 private:
  enum class kind : std::uint8_t { waits, never_waits, in_pieces, socket };
  [[nodiscard]] ssize_t write_some(std::string_view text) const noexcept;
  [[nodiscard]] int wait_for_room() const;

  const int fd_;
  unique_fd own_;  // the same file, opened again
  kind kind_ = kind::waits;
  unique_fd news_;                          // readable once give_up_after() was called
  std::atomic<std::int64_t> patience_{-1};  // in milliseconds
};

}  // namespace penstock::cli
