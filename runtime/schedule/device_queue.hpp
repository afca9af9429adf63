// The jobs of a pool between the end of their function and the device's answer: which results the GPU owner
// must upload, and what happens to them when the owner dies (rule J22). Pure: no thread, no I/O, no time.
// Driven by actors/jobs/device_jobs. For the job book, these jobs have ended.
//
//            take_orders()              answered()
//   waiting --------------> ordered ------------------> gone: answered
//      ^                       |
//      |  owner lost           |  owner lost: two owners have died of it -> gone: poisoned
//      +-----------------------+              not idempotent            -> gone: lost
//                                  failed(): there is no device any more -> gone: no_device
//
// Every added job departs ("gone") exactly once, and only then may its result leave its slot: an owner may
// read the result until it has answered or is dead. A job cancelled while it is ordered stays, unwanted,
// until then.
//
// Orders are numbered from 1 and numbers are never reused, so an answer that is late, repeated or from a dead
// owner is recognised. Memory: one entry for each job; each holds a slot or a part of one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::schedule {

enum class device_end : std::uint8_t {
  answered,   ///< the device's answer says how the job ended
  poisoned,   ///< two owners died of the job; see `causes`
  lost,       ///< not idempotent, and the owner that died may have started it
  no_device,  ///< there is no longer a device: see failure()
  cancelled,  ///< cancelled before it was ordered, or its answer was no longer wanted
};

struct device_departure {
  std::uint64_t job = 0;
  device_end how = device_end::answered;
  /// False: it was cancelled while it was ordered, and its caller already knows the outcome.
  bool wanted = true;
  std::vector<std::string> causes{};  ///< ends of owners blamed on it, oldest first
};

struct device_order {
  std::uint64_t upload = 0;
  std::uint64_t era = 0;
  std::uint64_t job = 0;
  bool operator==(const device_order&) const = default;
};

/// The job that an owner's death is blamed on.
struct device_blame {
  std::uint64_t job = 0;
  std::string cause;
  bool poisons = false;
};

/// Not thread-safe.
class device_queue {
 public:
  /// Add each job once. `kept`: its result stays in a device buffer until its caller releases it.
  void add(std::uint64_t job, bool idempotent, bool kept = false);
  /// Jobs not ordered yet, in the order of their numbers. From now on an owner may read their results. Kept
  /// jobs, including those already ordered, take at most `room` buffers. The job `first` may take one more,
  /// because a caller that takes results in the order of jobs waits for it.
  [[nodiscard]] std::vector<device_order> take_orders(std::uint64_t room = ~std::uint64_t{0},
                                                      std::uint64_t first = 0);

  /// Empty if the answer is late.
  [[nodiscard]] std::optional<device_departure> answered(std::uint64_t upload);
  /// gone: removed at once, because it had not been ordered. unwanted: already ordered, so it departs later.
  /// unknown: it was never added, has departed, or was cancelled before.
  enum class cancelling : std::uint8_t { gone, unwanted, unknown };
  [[nodiscard]] cancelling cancel(std::uint64_t job);
  /// The owner is dead. Orders are repeated under `era`, except for jobs that depart now. Ignored unless
  /// `era` is later than the current one.
  [[nodiscard]] std::vector<device_departure> owner_lost(std::uint64_t era,
                                                         const std::optional<device_blame>& blamed);
  /// There will be no other owner, so every job departs. Add no job from now on.
  [[nodiscard]] std::vector<device_departure> failed(const std::string& why);
  [[nodiscard]] const std::optional<std::string>& failure() const noexcept { return failure_; }

  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }
  [[nodiscard]] bool contains(std::uint64_t job) const { return jobs_.contains(job); }
  [[nodiscard]] std::uint64_t late_answers() const noexcept { return late_answers_; }

 private:
  struct entry {
    bool idempotent = true;
    bool wanted = true;
    bool kept = false;
    std::uint64_t upload = 0;  // 0: not ordered yet
    std::vector<std::string> causes{};
  };
  device_departure depart(std::uint64_t job, device_end how);

  std::map<std::uint64_t, entry> jobs_;
  std::map<std::uint64_t, std::uint64_t> ordered_;  // job by upload; each is in jobs_
  std::vector<std::uint64_t> waiting_;              // jobs to order; some may have departed
  std::uint64_t kept_ordered_ = 0;                  // how many in ordered_ are kept
  std::uint64_t last_upload_ = 0;
  std::uint64_t era_ = 0;
  std::uint64_t late_answers_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace penstock::schedule
