// When a dead child is started again. One policy a place; the pool's own rules are in pool.hpp. Pure.
//
//   restart type   exit 0      other exit, signal, hang   exit 77, 78, 82
//   permanent      restart     restart                    give the place up
//   transient      stopped     restart                    give the place up
//   temporary      stopped     stopped                    stopped
//
// Only *counted* deaths (fruitless and not charged to a sample) wait and count towards the intensity: a
// worker that gets work done is worth restarting for ever, and a sample that kills is the ledger's business.
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
    no_restart,  ///< exit 77 (permission), 78 (configuration), 82 (protocol): would end the same way again
    operated     ///< an operator or the pool itself ended it: never counts, clears the history
  };
  how ending = how::abnormal;
  bool charged = false;   ///< to a sample
  bool fruitful = false;  ///< it completed a sample since it was ready
  /// Counts towards intensity and backoff (semantics 16).
  [[nodiscard]] bool counted() const noexcept { return ending != how::operated && !charged && !fruitful; }
};

/// What becomes of the place.
struct restart_decision {
  enum class what : std::uint8_t { restart, stop, fail };
  what act = what::restart;
  steady_time at{};  ///< restart: not before
};

class restart_policy {
 public:
  /// The seed makes the jitter reproducible.
  restart_policy(const restart_settings& settings, std::uint64_t seed) : settings_(settings), random_(seed) {}

  restart_decision child_died(steady_time now, const death& d);
  /// A child that was ready for [backoff] reset_after before it died starts with a clean history.
  void child_ready(steady_time now) noexcept { ready_since_ = now; }
  /// An operator acted on this place: all is forgiven.
  void forgive() noexcept;

 private:
  [[nodiscard]] nanoseconds next_wait();

  restart_settings settings_;
  std::mt19937_64 random_;
  std::deque<steady_time> counted_;  // within the intensity's period
  std::uint32_t in_a_row_ = 0;       // counted deaths without a fruitful one between
  steady_time ready_since_ = never;
};

}  // namespace penstock::supervision
