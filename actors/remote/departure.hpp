// A host that leaves a session: ordered from any thread, carried out by the thread of its connection. Used by host_connection.
#pragma once

#include "runtime/base/patient_deadline.hpp"

#include <atomic>
#include <optional>
#include <utility>

namespace penstock::hosts {

class departure {
 public:
  /// Orders the host to leave, from any thread. Its worker finishes its leases first, unless `at_once`.
  void order(bool at_once) noexcept {
    if (at_once) at_once_ = true;
    ordered_ = true;
  }
  [[nodiscard]] const std::atomic<bool>& ordered() const noexcept { return ordered_; }
  [[nodiscard]] bool at_once() const noexcept { return at_once_; }

  // Call the rest on the connection's thread.
  /// True once, after order(): the caller then tells the session that the host leaves.
  [[nodiscard]] bool is_news() { return ordered_ && !std::exchange(told_, true); }
  /// Whether the host is leaving and its time `drain` is over. Call at least every `look_every`: longer gaps, in which the thread
  /// did not run, count only in part.
  [[nodiscard]] bool has_drained(nanoseconds drain, nanoseconds look_every, steady_time now) {
    if (!ordered_) return false;
    if (!deadline_) {
      deadline_.emplace(drain, look_every);
      deadline_->restart(now);
    }
    return deadline_->is_over(now);
  }

 private:
  std::atomic<bool> ordered_ = false;
  std::atomic<bool> at_once_ = false;
  bool told_ = false;
  std::optional<patient_deadline> deadline_;  // runs since the host began to leave
};

}  // namespace penstock::hosts
