// The common part of starting a session and a pool: workers and their rules, control socket, metrics port.
#pragma once

#include "actors/session/board.hpp"
#include "actors/session/control_verbs.hpp"
#include "actors/session/process_logs.hpp"
#include "actors/supervisor/supervisor.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/control/control_server.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/telemetry/event_journal.hpp"
#include "runtime/telemetry/metrics_server.hpp"

#include <penstock/config.hpp>

#include <functional>
#include <future>
#include <memory>
#include <thread>

namespace penstock::session {

/// The number of workers requested.
[[nodiscard]] std::uint32_t workers_of(const config& settings);

/// Descriptors that every worker inherits; -1: none.
struct shared_descriptors {
  int lifeline = -1;
  int arena = -1;
  int flights = -1;
  int index = -1;
};
[[nodiscard]] supervisor::worker_program program_of_workers(const config& settings,
                                                            const shared_descriptors& fds);
[[nodiscard]] supervisor::supervisor_settings supervisor_settings_of(const config& settings,
                                                                     std::uint32_t workers);

/// Throws error (errc::usage) when there is no such worker.
void check_worker(const session_status& status, std::uint32_t worker);

/// What ends together with a session of this process, for the answers of its verbs. A launcher that has
/// exited no longer counts.
[[nodiscard]] std::function<const char*()> end_of(session_scope scope);

/// The verbs with the same meaning for every Body: stop, pause, scale, restart, drain, and queries of the
/// board and the journal. The caller adds the rest.
template <class Body>
session_controls controls_of(Body& body, board& facts, const telemetry::event_journal& journal,
                             process_logs& logs, session_scope scope) {
  session_controls controls;
  controls.ends = end_of(scope);
  controls.waited_seconds = [&facts] { return facts.waited_seconds(std::chrono::steady_clock::now()); };
  controls.events = [&journal](std::uint64_t after, std::size_t limit) {
    return journal.events_after(after, limit);
  };
  controls.deaths = [&facts] { return facts.report({}, std::chrono::steady_clock::now()).deaths; };
  controls.owner_deaths = [&facts] {
    return facts.report({}, std::chrono::steady_clock::now()).owner_deaths;
  };
  controls.quarantine = [&facts] { return facts.report({}, std::chrono::steady_clock::now()).quarantine; };
  controls.lift_quarantine = [](std::uint64_t, bool) { return false; };
  controls.stop = [&body](bool at_once) {
    if (at_once) return body.stop(std::chrono::milliseconds(0));
    body.stop(std::nullopt);
  };
  controls.pause = [&body](bool paused) { body.pause(paused); };
  controls.scale = [&body](std::uint32_t workers) { body.scale(workers); };
  controls.restart = [&body](std::uint32_t worker) { body.restart(worker); };
  controls.drain = [&body](std::uint32_t worker) { body.drain(worker); };
  controls.logs = &logs.book();
  return controls;
}

/// The rank of a session with this name. Also set for a session that does not join: a rank that delivers the
/// rest of its group is one.
[[nodiscard]] std::optional<control::rank_note> rank_named(const std::string& name);

/// Creates the server on the io thread, where it must also be used and destroyed. Only warns if the socket
/// cannot be created: the work does not depend on it. A name that ends in the rank of a launcher's
/// environment marks the socket as that rank's.
void open_control_socket(process::io_thread& io, const std::string& name, session_controls controls,
                         std::unique_ptr<control::control_server>& server);
/// The same for the metrics port.
void open_metrics(process::io_thread& io, const std::string& listen,
                  std::function<telemetry::metrics_facts()> facts,
                  std::unique_ptr<telemetry::metrics_server>& server);

/// Runs work that creates or destroys actors on a temporary thread and waits for it. CAF leaves a reference
/// to the system's logger in a thread_local of each thread that spawns actors, and the system's destructor
/// waits until all references are gone: forever if such a thread keeps running. In exit() the main thread's
/// thread_local is even destroyed before static objects, so a static Session would release it twice. In
/// addition, threads started from this one have all signals blocked.
template <class Work>
void on_a_fresh_thread(Work work) {
  std::packaged_task<void()> task(std::move(work));
  auto done = task.get_future();
  {
    const all_signals_blocked quiet;
    std::thread(std::move(task)).join();
  }
  done.get();
}

}  // namespace penstock::session
