// The batch that the consumer of a data loader waits for, as the program reports it. Thread-safe: the consumer's thread and the job
// scheduler write, the io thread reads.
#pragma once

#include "runtime/schedule/lost_batches.hpp"
#include "runtime/supervision/awaited.hpp"

#include <penstock/pool.hpp>

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace penstock::jobs {

class awaited_by_consumer {
 public:
  /// Returns true if the wait begins with this call.
  bool wait(std::uint64_t job, batch_mark doing, steady_time now);
  /// Ends the wait. Returns false if there was none.
  bool came(steady_time now);
  [[nodiscard]] std::optional<supervision::awaited_batch> now() const;
  /// Call for each batch that had slow samples, with its worker. If the last wait was for this batch, records how much
  /// of that wait these samples caused.
  void was_slow(const slow_batch& batch);
  /// The latest batches with slow samples.
  [[nodiscard]] std::vector<slow_load> slow_loads() const;
  // As schedule::lost_batches.
  void lost(std::uint64_t job, steady_time leased);
  void leased(std::uint64_t job, steady_time now);
  void repeats(std::uint64_t job, std::uint64_t former);
  /// The latest waits for batches whose workers died, then the one in progress. If batches are not taken in order, only the end of a wait
  /// tells for which batch it was.
  [[nodiscard]] std::vector<lost_wait> lost_waits(steady_time now) const;

 private:
  mutable std::mutex mutex_;
  std::optional<supervision::awaited_batch> batch_;
  struct wait_for_batch {
    std::uint64_t job = 0;
    steady_time from{};
    steady_time to{};
  };
  wait_for_batch last_;  // the wait in progress, or the last one
  std::deque<slow_load> slow_;
  std::uint64_t slow_so_far_ = 0;
  schedule::lost_batches losses_;
  std::deque<lost_wait> lost_;
  std::uint64_t lost_so_far_ = 0;
};

}  // namespace penstock::jobs
