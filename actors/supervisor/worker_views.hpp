// The state of a worker seen from outside: for status and the hang detector, and its use of the GPU. Reads
// /proc and the flight recorder; makes no decisions.
#pragma once

#include "actors/protocol/local/lease_counts.hpp"
#include "actors/supervisor/death_record.hpp"
#include "runtime/process/gpu_use_watch.hpp"
#include "runtime/supervision/worker_supervision.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

/// The workers that are alive or whose death is not settled yet, and the last unexpected death of each place.
class worker_records {
 public:
  void begin(worker_ref who, steady_time now);
  /// The facts about this worker; null if its place is empty, or another process has it.
  [[nodiscard]] worker_facts* find(worker_ref who);
  [[nodiscard]] worker_facts& at(worker_ref who) { return living_.at(who.worker); }
  [[nodiscard]] std::map<std::uint32_t, worker_facts>& all() { return living_; }
  /// Drops the facts about this worker; does nothing if another process has its place.
  void erase(worker_ref who);
  void note_death(const death_report& report) { deaths_[report.worker] = report; }

  [[nodiscard]] std::vector<worker_status> statuses(const supervision::pool& places,
                                                    const arena::flight_recorders& flights,
                                                    steady_time now) const;
  /// `starting`: what the spawn thread is doing.
  [[nodiscard]] std::vector<supervision::worker_sign> signs(const arena::flight_recorders& flights,
                                                            const scheduler::lease_counts& leases,
                                                            const std::string& starting, steady_time now, work_kind kind) const;

 private:
  std::map<std::uint32_t, worker_facts> living_;  // by place
  std::map<std::uint32_t, death_report> deaths_;  // by place
};

/// The GPU library or device that a worker, or a process that it started, held at the last check.
[[nodiscard]] std::optional<std::string> gpu_use_of(const process::gpu_use_watch& users, pid_t worker);

}  // namespace penstock::supervisor
