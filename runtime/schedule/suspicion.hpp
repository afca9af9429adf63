// Which samples are suspected of killing workers: how many deaths each is blamed for, which must be tried
// alone, and which are quarantined (rules D1-D6). Pure: no clock, no I/O, no knowledge of batches and slots.
// The ledger reports deaths to it and queries it before leasing. The job book does the same with a job as
// {epoch 0, its number}, and drops it when it is settled.
//
//                 death blamed            max_attempts - 1 deaths           it killed again
//   unsuspected ----------------> suspected ----------------------> isolated ----------------> quarantined
//       ^                             |                                 |                           |
//       |                             |  cleared twice before, or       |  loaded alone: cleared    |
//       |                             +-- max_attempts = 1 -------------)-------------------------->|
//       +---------------------------------------------------------------+                           |
//       +-------------------------------------------------------------------------------- released -+
//
// A suspicion is limited to one epoch; a quarantine lasts until it is released. Memory: one entry for each
// sample that killed a worker in an open epoch, and one number for each quarantined sample.
#pragma once

#include "runtime/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock::schedule {

/// The key of a suspicion. It contains the epoch, because no sample is a suspect at
/// the beginning of an epoch.
struct suspect {
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
  auto operator<=>(const suspect&) const = default;
};

/// A suspect that waits to be loaded alone, or is being loaded alone.
struct probation {
  suspect who;
  stream_position position = 0;  ///< the batch that waits for the outcome
  std::uint32_t attempt = 1;
  std::optional<lease_ref> lease;  ///< empty: not being loaded now
};

/// The sample is not loaded again, in this epoch or a later one.
struct sample_quarantined {
  stream_position position = 0;
  std::uint64_t sample = 0;
  std::uint32_t attempts = 0;  ///< deaths blamed on the sample since it was last cleared
  std::vector<std::string>
      /// One for each death, oldest first; if the sample could not be tried alone, the last cause says why.
      causes;
};

/// Not thread-safe.
class suspicion {
 public:
  /// After `max_attempts` - 1 deaths a sample is tried alone. With 1, the first death quarantines it.
  explicit suspicion(std::uint32_t max_attempts) : max_attempts_(max_attempts) {}

  // Deaths.

  /// `worker` died of the sample. `alone`: the sample was in a probation, so it is quarantined. Returns the
  /// quarantine if the sample is quarantined.
  std::optional<sample_quarantined> blame_death(const suspect& who, stream_position position, bool alone,
                                                std::uint32_t worker, const std::string& cause);
  /// The number of samples with a death on record, including those cleared since.
  [[nodiscard]] std::size_t suspects() const noexcept { return records_.size(); }
  /// 1 + the number of deaths blamed on the suspect.
  [[nodiscard]] std::uint32_t attempt_of(const suspect& who) const;
  /// The causes of the deaths blamed on the suspect, oldest first.
  [[nodiscard]] std::vector<std::string> causes_of(const suspect& who) const;
  /// Another worker with the same batch has already died of the sample in this attempt, so the death of
  /// `worker` does not count.
  void same_attempt(const suspect& who, std::uint32_t worker);
  /// The workers that the suspect killed in its last attempt. The next attempt should run elsewhere.
  [[nodiscard]] std::vector<std::uint32_t> last_workers(const suspect& who) const;

  // Probations. A batch with an isolated sample must wait.

  [[nodiscard]] bool anybody_isolated() const noexcept { return !isolated_.empty(); }
  [[nodiscard]] bool isolated(const suspect& who) const { return isolated_.contains(who); }
  /// A probation that is not leased yet.
  [[nodiscard]] std::optional<probation> next_probation() const;
  void begin_probation(const suspect& who, const lease_ref& lease);
  [[nodiscard]] std::optional<probation> probation_under(const lease_ref& lease) const;
  /// The sample was loaded, or failed in the ordinary way, so it
  /// is no longer a suspect. Empty if the probation was cancelled.
  std::optional<probation> clear(const lease_ref& lease);
  /// The worker is gone, so probations leased to it must be repeated.
  void worker_gone(worker_ref who);
  /// There is no worker for probations, so no isolated sample can be cleared: all are quarantined.
  std::vector<sample_quarantined> quarantine_isolated(const std::string& reason);

  // Quarantine.

  [[nodiscard]] bool is_quarantined(std::uint64_t sample) const { return quarantined_.contains(sample); }
  [[nodiscard]] const std::set<std::uint64_t>& quarantined() const noexcept { return quarantined_; }
  /// An earlier run has quarantined the sample.
  void quarantine_known(std::uint64_t sample) { quarantined_.insert(sample); }
  /// An operator releases the sample. Drops its deaths, so that it may be loaded again.
  void release(std::uint64_t sample);

  /// The suspect will never be loaded again. Drops everything known about it, even its quarantine. The result
  /// of a probation in progress is ignored.
  void forget(const suspect& who);
  /// Drops suspicions of epochs that are over.
  void forget_epochs_before(std::uint64_t epoch);
  /// The stream continues at another position. Drops all suspicions, but no quarantine. Results of probations
  /// in progress are ignored.
  void forget_suspects();

 private:
  struct record {
    std::vector<std::string> causes;  // causes of the deaths since the sample was last cleared
    std::uint32_t cleared = 0;
    std::vector<std::uint32_t> last_workers;
  };
  struct isolation {
    stream_position position = 0;
    std::optional<lease_ref> lease;
  };

  [[nodiscard]] probation as_probation(const suspect& who, const isolation& waiting) const;
  sample_quarantined quarantine(std::uint64_t sample, stream_position position, const record& found);

  std::uint32_t max_attempts_;
  std::map<suspect, record> records_;
  std::map<suspect, isolation> isolated_;  // each sample in it has a record and is not quarantined
  std::set<std::uint64_t> quarantined_;
};

}  // namespace penstock::schedule
