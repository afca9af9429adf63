// Whether and when to restart a dead child. Each place has its own policy: one per loader worker in the pool,
// one for the GPU owner. Rules that concern several places are in pool.hpp. Pure.
//
//   restart type   exit 0      other exit, signal, hang   exit 77, 78, 82
//   permanent      restart     restart                    give the place up
//   transient      stop        restart                    give the place up
//   temporary      stop        stop                       stop
//
// A child whose end was ordered (`operated`) is restarted under every type. Do not call this for a
// place that must stay empty.
//
// How soon, and whether it counts towards the intensity (the first matching line applies):
//
//   death                                    restarts                    counts   resets the backoff
//   operated: an ordered end                 at once                     no       yes, and clears the history
//   blamed on a sample, or fruitful         at once                     no       yes
//   outside_kill                             after the backoff           no       no
//   any other, or the start failed           after the backoff           yes      no
//
// A worker that gets work done can be restarted forever; the ledger handles samples that kill; and a SIGKILL
// from outside does not show a fault in the program.
#pragma once

#include "runtime/base/clock.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <deque>
#include <random>

namespace penstock::supervision {

struct restart_settings {
  restart_type type = restart_type::permanent;
  std::uint32_t intensity_max = 5;
  nanoseconds intensity_within{60'000'000'000};
  nanoseconds backoff_base{200'000'000};
  double backoff_factor = 2.0;
  nanoseconds backoff_max{30'000'000'000};
  nanoseconds backoff_reset_after{60'000'000'000};
};

restart_settings settings_of(const restart_config& from);

struct death {
  enum class how : std::uint8_t {
    normal,      ///< exit 0
    abnormal,    ///< any other end
    /// Exit 77 (permission), 78 (configuration), 82 (protocol): a restarted child would end in the same way.
    no_restart,
    operated     ///< an operator or the pool itself asked for it
  };
  how ending = how::abnormal;
  bool blamed = false;    ///< on a sample
  bool fruitful = false;  ///< whether it completed a sample (a worker) or a batch (the owner) since it was ready
  /// A SIGKILL that this session did not send and that no counted OOM kill explains. Set only for
  /// deaths of the GPU owner: a memory limit unknown to us may kill a worker at every start, and such a
  /// worker must be given up.
  bool outside_kill = false;

  /// Whether the death counts towards the intensity (rule D9).
  [[nodiscard]] bool counted() const noexcept { return backs_off() && !outside_kill; }
  /// Whether the restart waits for the backoff.
  [[nodiscard]] bool backs_off() const noexcept { return ending != how::operated && !blamed && !fruitful; }
};

/// What happens to the place.
struct restart_decision {
  enum class what : std::uint8_t { restart, stop, fail };
  what act = what::restart;
  steady_time at{};  ///< if it is restarted: not before this time
};

class restart_policy {
 public:
  /// The seed makes the jitter reproducible.
  restart_policy(const restart_settings& settings, std::uint64_t seed) : settings_(settings), random_(seed) {}

  restart_decision child_died(steady_time now, const death& d);
  /// The process could not be spawned (EMFILE, EAGAIN, ...). Counts as a death, but the place is restarted
  /// under every restart type: these types concern only processes that ran.
  restart_decision start_failed(steady_time now);
  /// A child that was ready for [backoff] reset_after before it died starts with a clean history.
  void child_ready(steady_time now) noexcept { ready_since_ = now; }
  /// An operator acted on this place. Clears its history.
  void reset() noexcept;

 private:
  restart_decision count_and_back_off(steady_time now);
  [[nodiscard]] nanoseconds next_wait();

  restart_settings settings_;
  std::mt19937_64 random_;
  std::deque<steady_time> counted_;  // deaths within the intensity's period; at most intensity_max + 1
  std::uint32_t in_a_row_ = 0;       // consecutive deaths after which the restart waited
  steady_time ready_since_ = never;
};

}  // namespace penstock::supervision
