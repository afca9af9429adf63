// The fault injector of `penstock chaos`: at random times, drawn from a seed, it injects a random fault into
// a random worker of a live session. From the session's events it records when the fault was noticed and when
// the replacement was ready. Runs on its own thread.
//
// It never hits the sacrificial worker: a sample that kills its worker there is quarantined (rule D2), and a
// kill from outside looks like a kill by the sample. Samples hit elsewhere are blamed like any other, tried
// alone and cleared.
//
// It hits an owner's process only after a batch of that process has been acknowledged: an owner that is killed
// earlier waits longer each time before it restarts (rule D18). victim_book says which workers it spares. If a
// kind of fault finds no victim, another kind takes its turn. Only workers with a sample are made to hang: the
// others have no deadline to miss.
#pragma once

#include "runtime/base/clock.hpp"
#include "tools/penstock/chaos/victim_book.hpp"

#include <penstock/session.hpp>

#include <condition_variable>
#include <cstdint>
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

struct fault_injector_settings {
  std::vector<chaos_kind> kinds;
  double rate = 2;                              ///< faults per second, on average
  std::optional<std::uint64_t> faults;  ///< stop after this many faults
  std::optional<nanoseconds> time;      ///< stop this long after the fault injector was made
  std::uint64_t seed = 1;
  std::uint32_t places = 1;             ///< the victims are the workers 0 .. places - 1
  loader_intensity_config intensity{};  ///< limit on counted deaths of workers: [loader.restart]
  std::uint32_t max_attempts = 3;       ///< [quarantine]
};

/// One fault and its consequences.
struct chaos_fault {
  chaos_kind kind = chaos_kind::kill;
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  std::int32_t pid = 0;
  std::chrono::system_clock::time_point struck;
  std::optional<double> detected_seconds;   ///< seconds until the death was detected
  std::optional<double> recovered_seconds;  ///< seconds until the replacement was ready
  std::optional<double> replayed_seconds;   ///< seconds until a batch of the process was loaded or uploaded again
  std::string cause;                        ///< the cause in the death record
};

class fault_injector {
 public:
  explicit fault_injector(fault_injector_settings settings);
  ~fault_injector();
  fault_injector(const fault_injector&) = delete;
  fault_injector& operator=(const fault_injector&) = delete;

  /// Injects faults into this session until leave(). `memory_max_bytes`: a worker's limit, for leaks.
  void attack(Session& session, std::uint64_t memory_max_bytes);
  void leave();
  /// Call from session_options::on_event.
  void hear(const event& e);
  /// Takes the deaths of a session's owners, once the session is closed.
  void learn(const std::vector<owner_death_report>& deaths);

  /// Whether it has injected all requested faults, or its time has passed.
  [[nodiscard]] bool satisfied() const;
  [[nodiscard]] std::vector<chaos_fault> faults() const;

 private:
  void run();
  bool strike_once();
  void watch_owner(const session_status& now);
  [[nodiscard]] bool owner_may_be_struck(const session_status& now) const;
  [[nodiscard]] bool may_be_struck(const worker_status& w) const;
  void hear_of_owner(const event& e);
  void hear_of_worker(const event& e);
  void hear_of_batch(const event& e);

  const fault_injector_settings settings_;
  std::mt19937_64 random_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Session* session_ = nullptr;
  std::uint64_t memory_max_bytes_ = 0;
  std::vector<chaos_fault> faults_;
  std::size_t first_of_session_ = 0;  // index of this session's first fault
  struct owner_seen {
    std::uint32_t restarts = 0;
    std::uint64_t delivered = 0;  // batches that the owner had delivered when it was first seen
    bool struck = false;
  };
  std::optional<owner_seen> owner_;
  std::optional<victim_book> victims_;  // this session's
  const steady_time begun_ = std::chrono::steady_clock::now();
  bool over_ = false;
  std::thread thread_;
};

}  // namespace penstock::cli
