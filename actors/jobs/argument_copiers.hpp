// The threads that copy large arguments into slots, so that the job scheduler goes on deciding meanwhile, and several
// workers get their arguments at the same time. Used only by the job scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace penstock::jobs {

/// Not thread-safe. Its queue is bounded by the leases that workers hold.
class argument_copiers {
 public:
  /// At most this many: few threads use up what memory can give.
  static constexpr std::uint32_t threads_max = 4;
  /// One for each core that this process may use, within threads_max.
  [[nodiscard]] static std::uint32_t usual_threads() noexcept;

  /// Each thread starts with its first work. `threads` > 0.
  explicit argument_copiers(std::uint32_t threads = usual_threads());
  /// Does what was added, and joins the threads.
  ~argument_copiers();
  argument_copiers(const argument_copiers&) = delete;
  argument_copiers& operator=(const argument_copiers&) = delete;

  /// Runs `work`, which must not throw, on the thread of this place. The works of a place run one after the other, in the
  /// order of add().
  void add(std::uint32_t place, std::function<void()> work);

 private:
  class copier;
  std::vector<std::unique_ptr<copier>> copiers_;  // by place, modulo their number; none: not started
};

}  // namespace penstock::jobs
