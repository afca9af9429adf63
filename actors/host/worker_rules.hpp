// From a config: how many workers run, which program, and the rules by which the supervisor replaces them.
#pragma once

#include "actors/supervisor/supervisor.hpp"
#include "actors/supervisor/worker_processes.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <cstdint>
#include <vector>

namespace penstock::host {

/// The CPU time per second that workers may use: 0.5 with a quota of half a core.
[[nodiscard]] double cpu_of(const config& settings);
/// How many cores workers may use.
[[nodiscard]] std::uint32_t cores_of(const config& settings);
/// The number of workers requested.
[[nodiscard]] std::uint32_t workers_of(const config& settings);

/// Descriptors that every worker inherits; -1: none.
struct shared_descriptors {
  int lifeline = -1;
  int arena = -1;
  int flights = -1;
  std::vector<int> indexes{};
};
[[nodiscard]] supervisor::worker_program program_of_workers(const config& settings,
                                                            const process::worker_cores& cores,
                                                            const shared_descriptors& fds);
[[nodiscard]] supervisor::supervisor_settings supervisor_settings_of(const config& settings,
                                                                     std::uint32_t workers);

/// Throws error (errc::usage) when there is no such worker.
void check_worker(const session_status& status, std::uint32_t worker);
/// Whether its process is gone and none is about to take its place: an order to it concerns no work.
[[nodiscard]] bool has_ended(const session_status& status, std::uint32_t worker);
/// Throws error (errc::usage) for fewer workers than one, or more than [loader.limits] max.
void check_workers(const config& settings, std::uint32_t workers);

}  // namespace penstock::host
