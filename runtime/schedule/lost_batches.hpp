// Which jobs of a data loader workers have held when they died, and which part of a wait for them this explains (rule W31). Pure. Used by
// actors/jobs/awaited_by_consumer.
#pragma once

#include "runtime/base/lost_wait.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace penstock::schedule {

/// Not thread-safe.
class lost_batches {
 public:
  static constexpr std::size_t kept = 4096;  ///< far more than any loader has under way

  /// A worker died that had held this job since `leased`.
  void lost(std::uint64_t job, steady_time leased);
  /// A worker gets this job. Ignored if no worker has lost it.
  void leased(std::uint64_t job, steady_time now);
  /// This job, not leased yet, loads the batch of `former`, which has ended.
  void repeats(std::uint64_t job, std::uint64_t former);
  /// For a wait for this job from `from` until `now`. Empty if no worker has lost the job, or if its last lease is older than the wait.
  [[nodiscard]] std::optional<lost_wait> part_of_wait(std::uint64_t job, steady_time from, steady_time now) const;

 private:
  struct loss {
    steady_time first_leased{};
    std::optional<steady_time> last_leased{};  // empty: no worker has it
  };
  std::map<std::uint64_t, loss> losses_;  // by job
};

}  // namespace penstock::schedule
