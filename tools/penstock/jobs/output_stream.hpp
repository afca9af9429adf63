// Writes results to a descriptor whose reader may stop reading, as `less` does; another thread can end the
// wait.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/wake_event.hpp"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace penstock::cli {

/// One thread calls write(); any thread may call give_up_after().
class output_stream {
 public:
  /// `fd` must outlive this object. A pipe or terminal is opened again, so that other processes' descriptors
  /// do not become non-blocking.
  explicit output_stream(int fd);

  /// Writes all bytes, waiting for room. Returns 0, an errno, or ETIMEDOUT: give_up_after() was called, and
  /// the reader took nothing for that long.
  [[nodiscard]] int write(std::string_view text);

  /// Gives up a write that makes no progress for this long, now and later.
  void give_up_after(std::chrono::milliseconds patience) noexcept;

 private:
  enum class kind : std::uint8_t { waits, never_waits, in_pieces, socket };
  [[nodiscard]] ssize_t write_some(std::string_view text) const noexcept;
  [[nodiscard]] int wait_for_room() const;

  const int fd_;
  unique_fd own_;  // the file behind the caller's descriptor, opened again
  kind kind_ = kind::waits;
  wake_event news_;                         // raised once give_up_after() was called
  std::atomic<std::int64_t> patience_{-1};  // in milliseconds
};

}  // namespace penstock::cli
