// Detects children that are alive but hang. Three clocks (rule W1): the start deadline; the heartbeat,
// which proves only that the process runs; and the item timeout, for the work on one sample. Pure; the
// supervisor's tick feeds it.
#pragma once

#include "runtime/base/clock.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervision {

struct hang_settings {
  nanoseconds start_deadline{30'000'000'000};
  nanoseconds heartbeat_timeout{10'000'000'000};
  nanoseconds item_timeout{30'000'000'000};

  /// How often to poll so that a hang is found at most 0.2 timeouts late, even on a busy machine.
  [[nodiscard]] nanoseconds tick() const noexcept;
};

enum class hang : std::uint8_t { start, heartbeat, item };

/// The state of one child as the supervisor just read it.
struct child_sign {
  std::uint32_t worker = 0;
  bool ready = false;            ///< false: the child is still starting
  std::uint64_t heartbeats = 0;  ///< increases while the process runs
  std::uint64_t work_mark = 0;   ///< changes with each sample and phase
  bool busy = false;             ///< working on a sample
  bool traced = false;           ///< whether a debugger is attached, which pauses its clocks
  /// The timeout of the current item, if a job has its own; empty: settings' item_timeout. A job's own
  /// timeout applies even if many children miss it together, because the user requested it explicitly.
  std::optional<nanoseconds> limit{};
};

struct hang_finding {
  std::uint32_t worker = 0;
  hang kind = hang::heartbeat;
  nanoseconds since{0};  ///< time without a sign of life

  [[nodiscard]] death_cause cause() const noexcept {
    return kind == hang::heartbeat ? death_cause::heartbeat : death_cause::hang;
  }
  /// "no heartbeat for 10 s (suspended)". `work`: "it has been loading 'cat.jpg'". wait_channel: empty if unknown.
  [[nodiscard]] std::string reason(const std::string& work, const std::string& wait_channel) const;
};

/// The wait channel as a part of a message: " (suspended)", " (futex_wait)"; empty if it is unknown.
[[nodiscard]] std::string place_of_wait(const std::string& wait_channel);

class hang_detector {
 public:
  explicit hang_detector(const hang_settings& settings) : settings_(settings) {}

  /// A new child has this place. Its start deadline begins now, its other clocks when it is ready.
  void watch(std::uint32_t worker, steady_time now);
  void forget(std::uint32_t worker);

  /// Call about every settings.tick(). Reports no hang (rules W8 and W9) when the call itself is late by more than half a timeout,
  /// or half of an item's own limit. With four or more children, it also reports none while over half of them
  /// have missed their deadline or will miss it within a quarter of a timeout: the machine is then probably
  /// slow. This lasts for at most one more timeout. Children that recover later than the others get another
  /// half timeout, once in each silence.
  std::vector<hang_finding> look(steady_time now, const std::vector<child_sign>& signs);

 private:
  struct clocks {
    steady_time started{};
    steady_time last_heartbeat{};
    steady_time last_work{};
    std::uint64_t heartbeats = 0;
    std::uint64_t work_mark = 0;
    // The clock that got an extra half timeout; reset when this clock restarts.
    std::optional<hang> had_half{};
    bool was_ready = false;
  };

  /// Compares the clocks with `quarters` quarters of each timeout.
  [[nodiscard]] std::optional<hang_finding> check(const clocks& c, const child_sign& sign, steady_time now,
                                                  int quarters) const;
  void give_half(clocks& c, hang kind, steady_time now) const;

  hang_settings settings_;
  std::map<std::uint32_t, clocks> watched_;
  std::optional<steady_time> last_look_;
  std::optional<steady_time> held_since_;  // when over half of the children began to miss their deadline
};

}  // namespace penstock::supervision
