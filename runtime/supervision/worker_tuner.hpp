// Chooses the number of workers of a stream while it runs ([loader] workers = "auto"). Pure: the time and measurements come in, steps
// come out. Driven by actors/host/tuning, five times a second.
//
// The tuner changes the number, waits until that many workers are ready, measures, and decides:
//
//   the consumer waits, workers are busy and cores are idle    try twice as many, as long as they load faster
//   more workers load no faster, or slower                     try numbers in between; take the smallest that loads as fast as the best
//   the consumer does not wait                                 use as many as it keeps busy, and 15 % more
//   this program needs cores itself                            leave it those cores
//
// A search may take 20 s at first. After that there are at most three changes a minute, and a change of the loading rate starts a new search.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/worker_look.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervision {

struct tuner_limits {
  std::uint32_t min = 1;
  std::uint32_t max = 64;
  double cores = 1;  ///< cores that this process and its workers may use: 0.5 with a quota of half a core
};

struct tuner_facts {
  std::vector<worker_look> workers;
  double waited_seconds = 0;    ///< how long the consumer has waited; a running total
  std::uint64_t delivered = 0;  ///< samples; a running total
  nanoseconds own_cpu{0};       ///< CPU time of this process; a running total
  bool flows = false;           ///< false: no demand yet, the device is not ready, or the stream is paused or over
};

struct tuner_step {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::string why;  ///< "the consumer waited 62 % of the time, and 11.8 of 16 cores were idle"
  steady_time at = never;
};

class worker_tuner {
 public:
  static constexpr std::uint32_t changes_a_minute = 3;

  worker_tuner(const tuner_limits& limits, std::uint32_t workers);

  /// The number to change to, if it should change now. Call with times that do not decrease.
  std::optional<tuner_step> look(steady_time now, const tuner_facts& facts);
  /// The step that look() returned last is impossible. From now on, the tuner asks for no more workers than
  /// it had before that step.
  void refused(const tuner_step& step, const std::string& why);

  [[nodiscard]] std::uint32_t workers() const noexcept { return wanted_; }
  [[nodiscard]] bool searches() const noexcept { return searching_; }
  /// Why the number of workers is what it is, as a sentence.
  [[nodiscard]] const std::string& sentence() const noexcept { return sentence_; }

 private:
  /// Sums over the calls to look() at which the wanted number of workers was ready.
  struct measurement {
    double seconds = 0;
    double waited = 0;
    double loaded = 0;     // samples
    double delivered = 0;  // samples
    double ready = 0;      // workers' seconds
    double busy = 0;
    double cpu = 0;
    double core_wait = 0;
    double own_cpu = 0;

    [[nodiscard]] double waits() const { return waited / seconds; }
    [[nodiscard]] double workers() const { return ready / seconds; }
    [[nodiscard]] double busy_workers() const { return busy / seconds; }
    [[nodiscard]] double busy_share() const { return ready > 0 ? busy / ready : 0; }
    /// How many cores a worker would use if it never had to wait for one.
    [[nodiscard]] double demand() const { return ready > 0 ? (cpu + core_wait) / ready : 0; }
  };
  /// Loading rate by number of workers, from the search in progress or else the last search.
  using rate_table = std::map<std::uint32_t, double>;

  measurement since_last_look(steady_time now, const tuner_facts& facts);
  [[nodiscard]] bool is_complete() const;
  std::optional<tuner_step> decide(steady_time now, const measurement& m);
  std::optional<tuner_step> feed_consumer(steady_time now, const measurement& m);
  std::optional<tuner_step> search(steady_time now, const measurement& m);
  void begin_search();
  std::optional<tuner_step> end_search(steady_time now, const measurement& m);
  std::optional<tuner_step> grow_again(steady_time now, const measurement& m);
  [[nodiscard]] std::optional<tuner_step> next_trial(steady_time now, const measurement& m) const;
  [[nodiscard]] std::optional<std::uint32_t> trial_below(const measurement& m) const;
  [[nodiscard]] std::optional<std::uint32_t> trial_between() const;
  std::optional<tuner_step> change(steady_time now, std::uint32_t to, std::string why);
  void note_own_need(const measurement& m);
  [[nodiscard]] std::uint32_t best() const;
  [[nodiscard]] double idle_cores(const measurement& m) const;
  [[nodiscard]] std::uint32_t most(const measurement& m) const;
  [[nodiscard]] std::uint32_t recent_changes(steady_time now) const;

  tuner_limits limits_;
  std::uint32_t wanted_;
  std::string sentence_ = "nothing was measured yet";
  struct worker_memory {
    std::uint32_t incarnation = 0;
    nanoseconds cpu{0};
    nanoseconds core_wait{0};
    std::uint64_t samples = 0;
  };
  std::map<std::uint32_t, worker_memory> before_;  // state of each worker at the previous look
  tuner_facts last_;
  std::optional<steady_time> looked_;
  steady_time took_{};  // when the consumer last took a batch
  // Since when the number of ready workers has differed from the wanted number.
  std::optional<steady_time> lacking_since_;
  steady_time measures_from_{};
  measurement sum_;
  rate_table rates_;
  bool searching_ = true;
  bool first_ = true;  // during the first search, whose steps do not count towards the limit of changes
  double flowed_ = 0;         // seconds that the stream has flowed so far
  double fed_ = 0;            // seconds in a row in which the consumer did not wait
  // Number of busy workers in the last measurements in which the consumer did not wait.
  std::deque<double> needs_;
  double reserved_ = 0;       // cores that this program needs itself
  std::deque<steady_time> changes_;  // changes after the first search, within the last minute
  // Makes the tuner wait longer each time before it repeats a trial that did not help.
  struct patience {
    steady_time until{};
    nanoseconds wait{0};
  };
  struct lower_bound {
    // The tuner does not go below this number for a while: fewer workers were too few.
    std::uint32_t workers = 0;
    steady_time shrunk_at = never;
    patience valid;
  } floor_;
  struct last_search {
    std::uint32_t from = 0;
    patience again;
  } last_search_;
};

}  // namespace penstock::supervision
