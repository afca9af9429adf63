// The state of a worker seen from outside: for status and the hang detector, and its use of the GPU. Reads
// /proc and the flight recorder; makes no decisions.
#pragma once

#include "actors/supervisor/death_record.hpp"
#include "runtime/process/gpu_use_watch.hpp"
#include "runtime/supervision/worker_supervision.hpp"

#include <optional>
#include <string>

namespace penstock::supervisor {

/// `living`: null if the worker has ended or never started. `died`: its last unexpected death; may be null.
[[nodiscard]] worker_status status_of(const supervision::place_view& place, const worker_facts* living,
                                      const arena::flight_reading& flight, const death_report* died,
                                      steady_time now);

[[nodiscard]] supervision::worker_sign sign_of(const worker_facts& w, const arena::flight_reading& flight,
                                               bool has_leases);

/// The GPU library or device that a worker, or a process that it started, held at the last check.
[[nodiscard]] std::optional<std::string> gpu_use_of(const process::gpu_use_watch& users, pid_t worker);

}  // namespace penstock::supervisor
