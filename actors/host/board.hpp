// The current state of the session, for status, report, progress and metrics. Actors record facts as they
// happen; readers take copies and never wait for an actor. Thread-safe.
#pragma once

#include "actors/host/consumer_waits.hpp"
#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/pauser.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/device/device.hpp"
#include "runtime/telemetry/metrics_text.hpp"
#include "runtime/telemetry/run_rates.hpp"

#include <penstock/report.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace penstock::host {

enum class quarantine_standing : std::uint8_t {
  none,  ///< never quarantined, or released
  in_force,
  lifted,  ///< lifted earlier in this run; a quarantine file may still list it
};

class board {
 public:
  board(std::string name, std::string placement);
  /// Records which part of each epoch this session delivers.
  void is_rank_of(const sampler_config& sampler);

  // Written by actors.
  void device_opened(const device::identity& what);
  void device_failed();
  void owner_changed(child_state state, std::optional<std::int32_t> pid, std::uint32_t restarts);
  void gpu_processes_seen(std::vector<gpu_process> processes);
  void owner_died(const owner_death_report& death);
  void owner_recovered(std::uint32_t incarnation, double seconds_since_its_end);
  void workers_changed(const std::vector<worker_status>& workers, bool degraded, std::uint32_t started,
                       std::uint32_t restarts);
  /// Returns the report, completed with what is known about earlier hangs.
  death_report worker_died(death_report death, work_kind kind);
  void group_changed(const group_status& now);
  void processes_lost(const std::vector<lost_process_report>& lost);
  void sample_failed(const scheduler::lost_sample& lost, std::shared_ptr<const raised_exception> exception = {});
  void sample_quarantined(const scheduler::lost_sample& lost);
  /// Records a data loader's quarantined sample. `known`: an earlier run quarantined it.
  void loader_quarantined(const scheduler::lost_sample& lost, bool known);
  void quarantine_known(const std::vector<quarantine_report>& known);
  /// Lifts the quarantine for this run, or releases the sample for good. Returns the sample's previous state.
  quarantine_standing lift_quarantine(std::uint64_t sample, bool for_good);
  void uploaded(std::uint64_t uploads, std::uint64_t bytes, bool pinned);
  void delivered(const schedule::delivery& batch, std::uint64_t epoch);
  /// An empty `quarantined` leaves that number unchanged.
  void counted(std::uint64_t stale_dropped, std::optional<std::uint64_t> quarantined, const hedge_counts& hedges = {});

  // Written by the session.
  void configured(std::uint32_t workers);
  void planned(std::uint64_t samples_before, std::uint64_t samples_expected, std::uint32_t slots);
  void dataset_has(std::uint64_t samples);
  void has_slots(std::uint32_t of_a_worker);
  void begun(steady_time now);
  void batch_taken(steady_time taken);
  /// Records the progress of a data loader's pass: `done` of `expected` batches (0: unknown) are delivered or left out.
  void loader_pass(std::uint64_t epoch, std::uint64_t done, std::uint64_t expected);
  /// A data loader's program loads a batch again, because of a death. `lost_before`: an earlier death had already lost
  /// it.
  void batch_repeated(bool lost_before);
  /// A data loader's program does not get a batch. `samples`: how many of its samples are not in quarantine.
  void batch_lost(std::uint64_t samples);
  /// Records that a data loader's consumer has taken a batch. `samples` is 0 if all samples of the batch were left out.
  void loader_batch_taken(std::uint64_t epoch, std::uint64_t samples, std::uint64_t left_out, steady_time taken);
  /// Record how long the consumer waits for batches (consumer_waits). waited() is for an owner in another process, wait_begins() and
  /// wait_ends() are for one in this process.
  void waited(nanoseconds in_all, std::optional<steady_time> waits_at);
  void wait_begins(steady_time now);
  void wait_ends(steady_time now);
  /// Call several times a second. `suspended`: how long this process was suspended since the last call.
  void looked(steady_time now, nanoseconds suspended);
  // These three return true if they changed anything.
  bool ended(run_outcome how, const std::optional<failure>& why, steady_time now);
  /// `why_failed`: why the program failed; empty if it did not.
  bool ended_if_running(run_outcome how, steady_time now, const std::string& why_failed = {});
  /// `by`: who asked for it.
  bool paused(bool is_paused, pauser by, steady_time now);
  /// The name that verbs use. It differs from the configured name if another session has that.
  void is_called(std::string name) {
    const std::lock_guard hold(mutex_);
    status_.session = std::move(name);
  }
  bool stopping();
  void stalled(const std::optional<stall_report>& what);
  void measured(telemetry::rates_told rates);
  void limited(const telemetry::limit_reading& reading);
  /// Names the config file that the settings come from.
  void read_from(std::string config_file);

  [[nodiscard]] session_status status() const;
  /// Like status(), but with the stall that was in progress at the end, if there was one.
  [[nodiscard]] session_status status_before_end() const;
  [[nodiscard]] double waited_seconds(steady_time now) const;
  [[nodiscard]] std::optional<steady_time> waits_since() const;
  /// How much each worker loads per second (telemetry::rates_told); empty while the session is paused, and after
  /// its end.
  [[nodiscard]] std::map<std::uint32_t, double> worker_rates() const;
  [[nodiscard]] telemetry::limit_reading limits() const;
  /// Who asked for the pause; empty: the session is not paused.
  [[nodiscard]] std::optional<pauser> paused_by() const;
  /// When the consumer first asked for work; `never` before that.
  [[nodiscard]] steady_time begun_at() const;
  /// Whether the device has reported that it reads the slots by DMA.
  [[nodiscard]] bool is_pinned() const;
  [[nodiscard]] telemetry::metrics_facts metrics(steady_time now) const;
  /// Takes the epochs from the scheduler's accounts.
  [[nodiscard]] run_report report(const std::vector<schedule::epoch_account>& accounts,
                                  steady_time now) const;

 private:
  [[nodiscard]] bool is_moving() const { return report_.outcome == run_outcome::running && !paused_by_; }

  mutable std::mutex mutex_;
  session_status status_;
  run_report report_;
  std::array<std::uint64_t, telemetry::death_causes> deaths_{};        // all worker deaths, by cause
  std::array<std::uint64_t, telemetry::death_causes> owner_deaths_{};  // the same for GPU owner processes
  std::set<std::uint64_t> released_;  // released for good and not quarantined since
  std::optional<steady_time> begun_;
  std::optional<steady_time> first_batch_;
  std::optional<steady_time> ended_;
  mutable consumer_waits waits_;
  std::optional<stall_report> stalled_at_end_;
  std::vector<lost_process_report> lost_processes_;
  telemetry::limit_reading limits_;
  telemetry::rates_told rates_;
  bool degraded_ = false;
  std::optional<pauser> paused_by_;  // empty: the session is not paused
  bool stopping_ = false;
};

}  // namespace penstock::host
