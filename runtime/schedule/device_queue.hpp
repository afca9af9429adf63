// The jobs of a pool between the end of their function and the device's answer: what the GPU owner is to upload, and what
// becomes of it when the owner dies (rule J22). Pure: no thread, no I/O, no time. Driven by actors/jobs/device_jobs;
// the job book, for which these jobs have ended, does not know of it.
//
//            take_orders()              answered()
//   waiting --------------> ordered ------------------> gone: answered
//      ^                       |
//      |  owner lost           |  owner lost: two owners have died of it -> gone: poisoned
//      +-----------------------+              not idempotent            -> gone: lost
//                                  failed(): there is no device any more -> gone: no_device
//
// Every job that was added is gone exactly once, and only then may its result leave its slot: an owner may read it until
// it has answered or is dead. A job that is cancelled while it is ordered stays, unwanted, until then.
//
// Orders are numbered from 1 and never use a number again, so an answer that comes late, from an owner that is gone, or
// twice, is recognised. Memory: one entry for each job in it; each holds a slot or a part of one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::schedule {

enum class device_end : std::uint8_t {
  answered,   ///< the device's answer says how
  poisoned,   ///< it has killed two owners; `causes`
  lost,       ///< not idempotent, and its owner died: it may have begun there
  no_device,  ///< failure() says why
  cancelled,  ///< before it was ordered, or its answer was not waited for
};

struct device_departure {
  std::uint64_t job = 0;
  device_end how = device_end::answered;
  bool wanted = true;  ///< false: it was cancelled while it was ordered, and its caller knows that
  std::vector<std::string> causes{};  ///< ends of owners that are blamed on it, oldest first
};

struct device_order {
  std::uint64_t upload = 0;
  std::uint64_t era = 0;
  std::uint64_t job = 0;
  bool operator==(const device_order&) const = default;
};

/// What the death of an owner is blamed on.
struct device_blame {
  std::uint64_t job = 0;
  std::string cause;
  bool poisons = false;
};

/// Not thread-safe.
class device_queue {
 public:
  /// Jobs are added once. `kept`: its result stays in a device buffer until its caller lets that go.
  void add(std::uint64_t job, bool idempotent, bool kept = false);
  /// Those that nobody was told of, in the order of their numbers. From now on an owner may read their results. Of kept
  /// ones only so many that they and those which are ordered take `room` buffers, and `first` besides: whoever takes
  /// results in the order of jobs waits for that one.
  [[nodiscard]] std::vector<device_order> take_orders(std::uint64_t room = ~std::uint64_t{0},
                                                      std::uint64_t first = 0);

  /// Nothing: it is late.
  [[nodiscard]] std::optional<device_departure> answered(std::uint64_t upload);
  /// Gone: it was not ordered. Unwanted: its departure comes later. Unknown: it was never added, is gone, or was
  /// cancelled before.
  enum class cancelling : std::uint8_t { gone, unwanted, unknown };
  [[nodiscard]] cancelling cancel(std::uint64_t job);
  /// The owner is dead. What was ordered is ordered again under `era`, but for those that are gone. An era that is not
  /// later than the present one is old news.
  [[nodiscard]] std::vector<device_departure> owner_lost(std::uint64_t era,
                                                         const std::optional<device_blame>& blamed);
  /// There will be no owner any more: everything is gone. Nothing may be added from now on.
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
    std::uint64_t upload = 0;  // 0: nobody was told
    std::vector<std::string> causes{};
  };
  device_departure depart(std::uint64_t job, device_end how);

  std::map<std::uint64_t, entry> jobs_;
  std::map<std::uint64_t, std::uint64_t> ordered_;  // job by upload; each is in jobs_
  std::vector<std::uint64_t> waiting_;              // jobs to be ordered; some may be gone
  std::uint64_t kept_ordered_ = 0;                  // of ordered_
  std::uint64_t last_upload_ = 0;
  std::uint64_t era_ = 0;
  std::uint64_t late_answers_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace penstock::schedule
