// The threads that copy large arguments into slots, so that the job scheduler keeps deciding meanwhile and
// several workers get their arguments at the same time. Used only by the job scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace penstock::jobs {

/// Not thread-safe. The leases that workers hold bound the queue.
class argument_copiers {
 public:
  /// The maximum number of threads: a few saturate the memory bandwidth.
  static constexpr std::uint32_t threads_max = 4;
  /// One per core that this process may use, up to threads_max.
  [[nodiscard]] static std::uint32_t usual_threads() noexcept;

  /// Each thread starts with its first piece of work. `threads` > 0.
  explicit argument_copiers(std::uint32_t threads = usual_threads());
  /// Completes all added work and joins the threads.
  ~argument_copiers();
  argument_copiers(const argument_copiers&) = delete;
  argument_copiers& operator=(const argument_copiers&) = delete;

  /// Runs `work`, which must not throw, on this place's thread. Runs the work of one place in the order of
  /// add().
  void add(std::uint32_t place, std::function<void()> work);

 private:
  class copier;
  std::vector<std::unique_ptr<copier>> copiers_;  // indexed by place modulo the number of threads; null: not started
};

}  // namespace penstock::jobs
