// Facts about one worker process that only reports use, and the report of its death. Pure.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/supervision/pool.hpp"
#include "runtime/supervision/termination.hpp"

#include <penstock/report.hpp>

namespace penstock::supervisor {

struct worker_facts {
  worker_ref who;
  pid_t pid = -1;  ///< -1: still starting
  std::optional<std::uint64_t> host;  ///< the loader host that runs the worker: `pid` is a process there; none: this machine
  std::uint32_t slots = 0;  ///< 0: none assigned yet
  std::shared_ptr<protocol::worker_link> link;
  std::shared_ptr<const unique_fd> parcels;
  steady_time started{};
  std::optional<process::exit_report> ended;
  std::string last_lines;
  std::vector<std::string> stack;
  std::string wait_channel;  ///< what the worker was waiting for in the kernel when it was found hanging
  std::string sent_signal;   ///< who sent the signal that ended the worker; empty: see termination::why_signalled()
  arena::flight_reading last_flight;
  std::uint64_t rss_bytes = 0;
  std::optional<memory_excess> over_memory{};  ///< since it exceeded its memory limit
  std::optional<std::string>
      gpu_use;  ///< the GPU library or device that the worker, or a process that it started, was seen using

  void used_at_most(std::uint64_t bytes) {
    if (over_memory) over_memory->bytes = bytes;
  }
};

/// The sample that the worker was loading, from the last reading of its flight recorder.
std::optional<schedule::flight_mark> sample_in_hand(const worker_facts& w);
[[nodiscard]] bool has_work(const arena::flight_reading& w);

/// The name of the sample, or the work as the job described it, from the last reading of the worker's flight
/// recorder; printable. Empty if the worker had none.
[[nodiscard]] std::string work_in_hand(const worker_facts& w, work_kind kind);

/// For a worker with this flight recorder that exceeds its memory limit.
[[nodiscard]] memory_excess excess_of(const arena::flight_reading& flight, std::uint64_t bytes, std::uint64_t limit_bytes);

/// Call once the worker has exited and the scheduler has decided what to blame.
death_report as_report(const worker_facts& w, const supervision::termination& ending,
                       const scheduler::blame_decision& decision, work_kind kind, steady_time now);

/// How the process ended: "ended: SIGSEGV". If the session killed it for a fault, the reason: "was killed: no heartbeat for 10
/// s". If it was ordered to end: "was stopped on request", or "was killed: it had not stopped within 10 s of the request".
[[nodiscard]] std::string end_text(const death_report& death);
[[nodiscard]] std::string end_text(const owner_death_report& death);

/// Whether the report of the job's end already covers this death, which is then logged only as a detail. `jobs_are_told`: see
/// supervisor_settings.
[[nodiscard]] bool is_told_as_job(const death_report& death, work_kind kind, bool jobs_are_told);

/// What a loader worker was doing if it died before its first sample: ", while setting up the dataset". Empty for other phases,
/// and in pools.
[[nodiscard]] std::string preparation_text(work_phase phase, work_kind kind);

/// What the worker was doing: ", while loading sample 7 (cat.jpg)", ", while running job 7 (thumbnail)", for a data loader ",
/// while loading sample 7". If it ignored a stop and nothing is blamed: ", while working on 'cat.jpg'". If it died before its
/// first sample: preparation_text(). After the reason for a worker over its memory limit: "; it was loading sample 7 when that
/// was noticed". Empty if nothing is known.
[[nodiscard]] std::string blame_text(const death_report& death, work_kind kind);

/// ", for 40 s; that had hung 2 times before: ...; 2 batches to load again": what else is known. Empty: nothing.
[[nodiscard]] std::string history_text(const death_report& death, work_kind kind);

/// The event's text: "worker 3 (pid 17) ended: SIGSEGV, while loading sample 7; 2 batches to load again".
[[nodiscard]] std::string death_text(const death_report& death, work_kind kind);

/// What follows death_text() in the log: "; a replacement starts in 2 s; stack: `penstock deaths --stacks`, with --last after
/// the end". `place`: the worker's place, after its death.
[[nodiscard]] std::string next_text(const death_report& death, const supervision::place_view& place, steady_time now);

}  // namespace penstock::supervisor
