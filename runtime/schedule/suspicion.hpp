// Which samples are suspected of killing workers: how many deaths each is charged with, which have to be
// tried alone, and which are quarantined (semantics 14, 15). Pure: no clock, no I/O, no idea of batches,
// slots or orders; used by the ledger, which tells it of deaths and asks it before it leases. The book of jobs
// uses it the same way: a job is {epoch 0, its number}, and is forgotten when it is settled.
//
//                 death charged            max_attempts - 1 deaths           it killed again
//   unsuspected ----------------> suspected ----------------------> isolated ----------------> quarantined
//       ^                             |                                 |                           |
//       |                             |  cleared twice before, or       |  loaded alone: cleared    |
//       |                             +-- max_attempts = 1 -------------)-------------------------->|
//       +---------------------------------------------------------------+                           |
//       +-------------------------------------------------------------------------------- released -+
//
// A suspicion belongs to one epoch; a quarantine holds until it is released. Memory: one entry for each
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

/// A sample as it is suspected: the same sample starts every epoch afresh.
struct suspect {
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
  auto operator<=>(const suspect&) const = default;
};

/// A suspect that waits to be loaded alone, or is being loaded.
struct trial {
  suspect who;
  stream_position position = 0;  ///< of the batch that waits for the outcome
  std::uint32_t attempt = 1;
  std::optional<lease_ref> lease;  ///< none: nobody tries it at the moment
};

/// Nobody loads it again, in this epoch or in a later one.
struct sample_quarantined {
  stream_position position = 0;
  std::uint64_t sample = 0;
  std::uint32_t attempts = 0;  ///< deaths charged to it since it was last cleared
  std::vector<std::string>
      causes;  ///< one for each of them, oldest first; then why it could not be tried alone
};

/// Not thread-safe.
class suspicion {
 public:
  /// After `max_attempts` - 1 deaths a sample is tried alone; 1: the first death quarantines it.
  explicit suspicion(std::uint32_t max_attempts) : max_attempts_(max_attempts) {}

  // Deaths.

  /// `worker` died of it. `alone`: in a trial, which decides. Returns the quarantine, if that is the outcome.
  std::optional<sample_quarantined> charge_death(const suspect& who, stream_position position, bool alone,
                                                 std::uint32_t worker, const std::string& cause);
  /// How many have a death on record, or had one before they were cleared.
  [[nodiscard]] std::size_t suspects() const noexcept { return records_.size(); }
  /// 1 + the deaths charged to it.
  [[nodiscard]] std::uint32_t attempt_of(const suspect& who) const;
  /// Of the deaths charged to it, oldest first.
  [[nodiscard]] std::vector<std::string> causes_of(const suspect& who) const;
  /// The worker that died of it last: the next attempt should run on another one.
  [[nodiscard]] std::optional<std::uint32_t> last_worker(const suspect& who) const;

  // Trials. A batch that holds an isolated sample has to wait.

  [[nodiscard]] bool anybody_isolated() const noexcept { return !isolated_.empty(); }
  [[nodiscard]] bool isolated(const suspect& who) const { return isolated_.contains(who); }
  /// One that nobody tries yet.
  [[nodiscard]] std::optional<trial> next_trial() const;
  void begin_trial(const suspect& who, const lease_ref& lease);
  [[nodiscard]] std::optional<trial> trial_under(const lease_ref& lease) const;
  /// It was loaded, or failed in an ordinary way: no suspect any more. None: that trial was called off.
  std::optional<trial> clear(const lease_ref& lease);
  /// What this worker had is to be tried again.
  void worker_gone(worker_ref who);
  /// There is no worker to try anything: every isolated sample is quarantined, since nobody can say that it
  /// does not kill.
  std::vector<sample_quarantined> quarantine_isolated(const std::string& reason);

  // Quarantine.

  [[nodiscard]] bool is_quarantined(std::uint64_t sample) const { return quarantined_.contains(sample); }
  [[nodiscard]] const std::set<std::uint64_t>& quarantined() const noexcept { return quarantined_; }
  /// From an earlier run.
  void quarantine_known(std::uint64_t sample) { quarantined_.insert(sample); }
  /// An operator has it tried again, as if it had never killed.
  void release(std::uint64_t sample);

  /// It never comes back: nothing remains of it, not even its quarantine. A trial under way ends unheard.
  void forget(const suspect& who);
  /// Those epochs are over.
  void forget_epochs_before(std::uint64_t epoch);
  /// The stream goes on elsewhere. Trials under way end unheard; quarantine stays.
  void forget_suspects();

 private:
  struct record {
    std::vector<std::string> causes;  // of the deaths since it was last cleared
    std::uint32_t cleared = 0;
    std::uint32_t last_worker = 0;
  };
  struct isolation {
    stream_position position = 0;
    std::optional<lease_ref> lease;
  };

  [[nodiscard]] trial as_trial(const suspect& who, const isolation& waiting) const;
  sample_quarantined quarantine(std::uint64_t sample, stream_position position, const record& found);

  std::uint32_t max_attempts_;
  std::map<suspect, record> records_;
  std::map<suspect, isolation> isolated_;  // all of them have a record, and none is quarantined
  std::set<std::uint64_t> quarantined_;
};

}  // namespace penstock::schedule
