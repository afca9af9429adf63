// The pool of loader places: which process has to exist, which has to go, and when to give up. Pure: events
// and the time come in, commands go out. Driven by actors/supervisor, which does the spawning and killing.
//
//                 start                  ready                          died: restart later
//   (stopped) ------------> starting ------------> ready -------------------------------> backoff
//       ^                      |  died               | drain                                 | time
//       |                      +------> backoff      v                                       v
//       |                                         draining ---- done ----> (stopped)      starting
//       +---- scaled down
//   any of them: too many counted deaths, or an exit that would repeat ----> failed
//   killed and not dead after its deadline ----> unkillable
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/supervision/restart_policy.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::supervision {

enum class child_state : std::uint8_t { stopped, starting, ready, draining, backoff, failed, unkillable };
[[nodiscard]] std::string_view name_of(child_state state) noexcept;

struct pool_settings {
  restart_settings restart;
  std::uint32_t workers = 1;    ///< wanted at the beginning
  std::uint32_t min_ready = 1;  ///< fewer for `min_ready_within` end the run; of as many as there shall be
  nanoseconds min_ready_within{60'000'000'000};
  std::uint32_t restarts_per_second_max = 50;
  std::uint32_t sacrificial_place = 64;  ///< number of the extra place
  std::uint64_t seed = 0;                ///< of the backoff's jitter
};

/// Spawn a process for this place.
struct start_child {
  worker_ref who;
  bool sacrificial = false;
};
/// Let it finish what it holds and go.
struct drain_child {
  worker_ref who;
};
struct pool_failed {
  failure reason;
};
using pool_command = std::variant<start_child, drain_child, pool_failed>;

struct place_view {
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  child_state state = child_state::stopped;
  std::uint32_t restarts = 0;
  steady_time next_restart = never;
};

class pool {
 public:
  explicit pool(const pool_settings& settings);

  /// First demand: all wanted places are started.
  void open(steady_time now);
  /// Session ends: nothing is started any more.
  void close();

  void child_ready(worker_ref who, steady_time now);
  /// The process is reaped. `last_words` goes into the error if this ends the run.
  void child_died(worker_ref who, steady_time now, const death& d, const std::string& cause,
                  const std::string& last_words);
  /// The process could not be started at all: counts like a fruitless death; a broken program fails the
  /// place.
  void start_failed(worker_ref who, steady_time now, const failure& why);
  void child_unkillable(worker_ref who);

  // Operator actions: never count, clear the history.
  void scale(std::uint32_t workers, steady_time now);
  void restart(std::uint32_t worker, steady_time now);  ///< drains it; a replacement follows
  void drain(std::uint32_t worker);  ///< drains it; the place stays empty until scale or restart
  void want_sacrificial(bool wanted, steady_time now);
  /// A worker that grew too large or did its share: replaced after the batch at hand, not counted.
  void recycle(worker_ref who);

  /// What is to be done now.
  [[nodiscard]] std::vector<pool_command> advance(steady_time now);
  /// When to call advance() again at the latest.
  [[nodiscard]] steady_time next_deadline() const;

  [[nodiscard]] std::vector<place_view> places() const;
  [[nodiscard]] bool degraded() const;
  [[nodiscard]] std::uint32_t started() const noexcept { return started_; }
  [[nodiscard]] std::uint32_t restarts() const noexcept { return restarts_; }
  /// Children that exist: starting, ready or draining.
  [[nodiscard]] std::uint32_t alive() const;

 private:
  struct place {
    explicit place(restart_policy p) : policy(std::move(p)) {}
    restart_policy policy;
    child_state state = child_state::stopped;
    std::uint32_t incarnation = 0;
    std::uint32_t restarts = 0;
    bool wanted = false;     // a process has to be here
    bool dismissed = false;  // not wanted because an operator said so
    bool operated = false;   // its end was asked for: not counted
    bool drain_sent = false;
    bool canary_waits = false;  // held back until the canary is ready
    steady_time restart_at = never;
  };

  [[nodiscard]] place& at(std::uint32_t worker);
  [[nodiscard]] place* current(worker_ref who);
  void start_due_places(steady_time now);
  void look_for_mass_death(steady_time now);
  void choose_canary();
  void end_canary();
  static void dismiss(place& p);
  static void invite(place& p, steady_time now);
  void check_minimum(steady_time now);
  void fail(failure reason);
  [[nodiscard]] std::uint32_t loader_count(child_state state) const;
  [[nodiscard]] std::uint32_t loaders_asked_for() const;
  [[nodiscard]] bool any_hope() const;

  pool_settings settings_;
  std::map<std::uint32_t, place> places_;
  std::vector<pool_command> outbox_;
  std::deque<steady_time> recent_starts_;                             // for the ceiling
  std::deque<std::pair<steady_time, std::uint32_t>> recent_counted_;  // for the canary: when, which place
  std::optional<std::uint32_t> canary_;
  std::optional<steady_time> below_minimum_since_;
  std::string last_trouble_;  // cause and last words of the latest death that nobody asked for
  std::uint32_t started_ = 0;
  std::uint32_t restarts_ = 0;
  bool open_ = false;
  bool failed_ = false;
};

}  // namespace penstock::supervision
