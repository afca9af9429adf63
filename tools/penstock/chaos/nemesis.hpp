// The nemesis of `penstock chaos`: at random moments, drawn from a seed, it strikes a random worker of a live
// session with a random fault, and notes from the session's events when that was noticed and when the
// replacement was ready. A thread of its own.
//
// It never strikes the sacrificial worker: by the rules a sample that is tried alone there and dies is quarantined
// (docs/semantics.md 14), and a kill from outside looks like one by the sample. Samples that it
// hits elsewhere are charged like any other, tried alone and cleared.
//
// An owner's process is struck only when it has had a batch acknowledged since it was ready: three deaths
// without a batch in ten minutes end a run by the rules (16, 17), and that would be the nemesis's doing and
// nobody's fault. For the same reason a worker's place rests when [loader.restart] intensity would not bear
// another death without a sample to charge it to. A kind whose turn it is and that finds no victim gives its
// turn to another. Hangs befall workers that have a sample: nobody can miss the work of one that has none.
#pragma once

#include "runtime/base/clock.hpp"

#include <penstock/config.hpp>
#include <penstock/session.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace penstock::cli {

enum class chaos_kind : std::uint8_t { kill, segv, abort, stop, hang, exit, leak, owner_kill };
[[nodiscard]] const char* name_of(chaos_kind kind) noexcept;
[[nodiscard]] std::optional<chaos_kind> chaos_kind_of(const std::string& name);

struct nemesis_settings {
  std::vector<chaos_kind> kinds;
  double rate = 2;                              ///< strikes a second, on average
  std::optional<std::uint64_t> faults;          ///< stop after so many
  std::optional<std::chrono::seconds> seconds;  ///< stop after this time
  std::uint64_t seed = 1;
  std::uint32_t places = 1;             ///< workers 0 .. places - 1 are struck
  loader_intensity_config intensity{};  ///< of workers' deaths that may count: [loader.restart]
};

/// One strike and what came of it.
struct chaos_fault {
  chaos_kind kind = chaos_kind::kill;
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  std::int32_t pid = 0;
  std::chrono::system_clock::time_point struck;
  std::optional<double> detected_seconds;   ///< until its death was known
  std::optional<double> recovered_seconds;  ///< until its replacement was ready
  std::optional<double> replayed_seconds;   ///< until a batch that it had was loaded, or uploaded, again
  std::string cause;                        ///< as the death record has it
};

class nemesis {
 public:
  explicit nemesis(nemesis_settings settings);
  ~nemesis();
  nemesis(const nemesis&) = delete;
  nemesis& operator=(const nemesis&) = delete;

  /// Strikes this session from now on, until leave(). `memory_max_bytes`: what a worker may use, for leaks.
  void attack(Session& session, std::uint64_t memory_max_bytes);
  void leave();
  /// For session_options::on_event.
  void hear(const event& e);
  /// How a session's owners died, when it is closed.
  void learn(const std::vector<owner_death_report>& deaths);

  /// It has struck as often, or as long, as it was told to.
  [[nodiscard]] bool satisfied() const;
  [[nodiscard]] std::vector<chaos_fault> faults() const;

 private:
  void run();
  bool strike_once();
  void watch_owner(const session_status& now);
  [[nodiscard]] bool owner_may_be_struck(const session_status& now) const;
  [[nodiscard]] bool may_be_struck(const worker_status& w);
  void hear_of_owner(const event& e);
  void hear_of_worker(const event& e);
  void hear_of_batch(const event& e);

  const nemesis_settings settings_;
  std::mt19937_64 random_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Session* session_ = nullptr;
  std::uint64_t memory_max_bytes_ = 0;
  std::vector<chaos_fault> faults_;
  std::size_t first_of_session_ = 0;  // faults of this session begin here
  struct owner_seen {
    std::uint32_t restarts = 0;
    std::uint64_t delivered = 0;  // when it was seen first
    bool struck = false;
  };
  std::optional<owner_seen> owner_;
  // By place: deaths that are charged to no sample, so that they may count. One more may be under way.
  std::map<std::uint32_t, std::deque<std::chrono::system_clock::time_point>> uncharged_;
  std::optional<steady_time> begun_;
  nanoseconds attacked_for_{0};  // in earlier sessions
  bool over_ = false;
  std::thread thread_;
};

}  // namespace penstock::cli
