// The pool of loader places: which processes to start, which to stop, and when to give up. Pure: events and
// the time come in, commands go out. Driven by actors/supervisor, which spawns and kills.
//
// A place is a number that one worker process at a time may hold; its incarnation counts the processes.
//
//                 start                  ready                          died: restart later
//   (stopped) ------------> starting ------------> ready -------------------------------> backoff
//       ^                      |  died               | drain                                 | time
//       |                      +------> backoff      v                                       v
//       |                                         draining ---- died ----> (stopped)      starting
//       +---- not wanted any more
//   any of them: too many counted deaths, or an exit that would repeat ----> failed
//   killed and not dead after its deadline ----> unkillable
//
// At any time the pool has a process, has a time at which it
// starts one, wants no place, or has failed with a reason.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/supervision/restart_policy.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::supervision {

struct pool_settings {
  restart_settings restart;   ///< restart rules of loader places; the sacrificial place is always restarted
  std::uint32_t workers = 1;  ///< wanted at the start
  /// The run fails if fewer workers are ready for longer than `min_ready_within`. At most `workers`.
  std::uint32_t min_ready = 1;
  /// The sacrificial worker must become ready within this time, too.
  nanoseconds min_ready_within{60'000'000'000};
  std::uint32_t restarts_per_second_max = 50;
  /// Number of the extra place. Local loaders have smaller numbers, workers on other machines larger ones.
  std::uint32_t sacrificial_place = 64;
  /// How long to wait for a loader host while no worker is left. Empty: no host can join.
  std::optional<nanoseconds> host_wait{};
  std::uint64_t seed = 0;                ///< for the backoff's jitter
};

/// Spawn a process for this place.
struct start_child {
  worker_ref who;
  bool sacrificial = false;
};
/// Let the worker finish its leases and exit.
struct drain_child {
  worker_ref who;
};
/// The sacrificial worker cannot be started, so suspects cannot be tried alone. Once per
/// want_sacrificial(true).
struct sacrificial_failed {
  std::string reason;  ///< includes the last output of the last attempt
};
struct pool_failed {
  failure reason;
};
using pool_command = std::variant<start_child, drain_child, sacrificial_failed, pool_failed>;

struct place_view {
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  child_state state = child_state::stopped;
  std::uint32_t restarts = 0;
  steady_time next_restart = never;
  vacancy why_stopped = vacancy::none;
};

class pool {
 public:
  explicit pool(const pool_settings& settings);

  /// The first demand starts all wanted places. Ignored after close(): the two calls come from different
  /// actors, so this one may be late.
  void open(steady_time now);
  /// The session is ending. Starts nothing from now on.
  void close();

  // Events of processes. Ignored if they are from an earlier incarnation.

  void child_ready(worker_ref who, steady_time now);
  /// The process is reaped. `last_words` becomes part of the error if this fails the run.
  void child_died(worker_ref who, steady_time now, const death& d, const std::string& cause,
                  const std::string& last_words);
  /// The process could not be started at all, which is a counted death. A program that cannot be executed fails the
  /// run.
  void start_failed(worker_ref who, steady_time now, const failure& why);
  /// The process survives SIGKILL. Its place stays occupied until child_died() or
  /// start_failed(). `why`: why it was killed, for the error if this ends the run.
  void child_unkillable(worker_ref who, const std::string& why);
  /// The session did not run for `time` (it was stopped, or the machine slept): this time does not
  /// count towards the time below the minimum of ready workers, nor towards the wait for a host or
  /// for the sacrificial worker.
  void discount_time(nanoseconds time) noexcept;

  // Operators' orders. They never count, and they clear the history of the places concerned. Operators do not
  // control the sacrificial place: scale() refuses numbers from sacrificial_place on, and restart() and
  // drain() only replace an existing sacrificial worker.

  void scale(std::uint32_t workers, steady_time now);
  /// Drains the process and starts a replacement. If there is no process, starts one at once.
  void restart(std::uint32_t worker, steady_time now);
  /// Drains the process. The place stays empty until scale() or restart().
  void drain(std::uint32_t worker);

  // Loader hosts. They never count either.

  /// A host offers a process for this place.
  void host_joined(std::uint32_t worker, steady_time now);
  /// There is no longer a process for this place.
  void host_left(std::uint32_t worker);
  /// An operator wants no process in this place, which stays empty until host_joined() or restart().
  void host_rests(std::uint32_t worker);
  /// A host was refused.
  void host_refused(std::string why) { last_refusal_ = std::move(why); }

  /// Whether the ledger has a sample that must be tried alone.
  void want_sacrificial(bool wanted, steady_time now);
  /// Drains and replaces a worker that grew too large or has loaded enough samples; not counted.
  void recycle(worker_ref who);

  /// The commands to carry out now.
  [[nodiscard]] std::vector<pool_command> advance(steady_time now);
  /// When to call advance() again at the latest.
  [[nodiscard]] steady_time next_deadline() const;

  [[nodiscard]] std::vector<place_view> places() const;
  /// The state of this place; an unknown place counts as stopped.
  [[nodiscard]] place_view place_of(std::uint32_t worker) const;
  [[nodiscard]] bool degraded() const;
  [[nodiscard]] std::uint32_t started() const noexcept { return started_; }
  [[nodiscard]] std::uint32_t restarts() const noexcept { return restarts_; }
  /// Whether this is a worker of a host whose place is no longer needed: the host leaves, moves the worker to
  /// another session, or was scaled down.
  [[nodiscard]] bool leaves_with_host(std::uint32_t worker) const;
  /// Children that exist: starting, ready or draining.
  [[nodiscard]] std::uint32_t alive() const;

 private:
  struct place {
    explicit place(restart_policy p) : policy(std::move(p)) {}
    restart_policy policy;
    child_state state = child_state::stopped;
    std::uint32_t incarnation = 0;
    std::uint32_t restarts = 0;
    bool wanted = false;                // whether this place needs a process
    vacancy why_empty = vacancy::none;  // why it is not wanted
    bool operated = false;              // its end was ordered, so it is not counted
    bool drain_sent = false;
    bool canary_waits = false;  // held back until the canary is ready
    steady_time restart_at = never;
  };

  [[nodiscard]] bool is_sacrificial(std::uint32_t worker) const noexcept {
    return worker == settings_.sacrificial_place;
  }
  [[nodiscard]] place& at(std::uint32_t worker);
  [[nodiscard]] place* current(worker_ref who);
  void settle_death(std::uint32_t worker, place& p, const restart_decision& next, steady_time now,
                    bool counted);
  void start_due_places(steady_time now);
  void detect_mass_death(steady_time now);
  void choose_canary();
  void end_canary();
  void empty(place& p, vacancy why);
  static void vacate(place& p, vacancy why);
  static void occupy(place& p, steady_time now);
  void replace(place& p);
  void check_minimum(steady_time now);
  void wait_for_host(steady_time now);
  void check_sacrificial(steady_time now);
  void give_sacrificial_up(const std::string& reason);
  [[nodiscard]] std::string text_of_none_left() const;
  void fail(failure reason);
  void note_trouble(std::uint32_t worker, const std::string& if_sacrificial, const std::string& if_loader);
  [[nodiscard]] std::string with_last_trouble(std::string text) const;
  [[nodiscard]] std::uint32_t loader_count(child_state state) const;
  [[nodiscard]] std::uint32_t loaders_asked_for() const;
  [[nodiscard]] bool anybody_comes() const;

  pool_settings settings_;
  std::map<std::uint32_t, place> places_;
  std::vector<pool_command> outbox_;
  std::deque<steady_time> recent_starts_;  // for the limit of restarts_per_second_max
  // Time and place of counted deaths, for the canary. Covers one second. Each death follows a start, so there
  // is at most one entry per place plus restarts_per_second_max.
  std::deque<std::pair<steady_time, std::uint32_t>> recent_counted_;
  std::optional<std::uint32_t> canary_;
  std::optional<steady_time> below_minimum_since_;
  std::optional<steady_time> without_workers_since_;
  std::optional<steady_time> sacrificial_missing_since_;
  std::string last_refusal_;              // the latest refusal of a loader host since one joined
  std::string last_trouble_;              // cause and last output of the latest unexpected death
  std::string last_sacrificial_trouble_;  // the same for the sacrificial worker
  std::uint32_t started_ = 0;
  std::uint32_t restarts_ = 0;
  bool sacrificial_wanted_ = false;
  // An operator has drained the last loader that was left or would have been restarted.
  bool emptied_by_operator_ = false;
  bool open_ = false;
  bool closed_ = false;
  bool failed_ = false;
};

}  // namespace penstock::supervision
