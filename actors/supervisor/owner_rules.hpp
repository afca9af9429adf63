// The supervision rules for the GPU owner's process, from the config; what the keeper sees of the process; the owner's
// name in messages. Used by the owner's keeper.
#pragma once

#include "actors/protocol/messages.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/supervision/owner_supervision.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

/// The deadline for starting a GPU owner's process. It is long because creating a context and registering the arena
/// take time.
inline constexpr nanoseconds owner_start_deadline = std::chrono::seconds(120);

/// An owner that aborts its communicator waits for this many times abort_timeout before it ends: once for open uses
/// and once for the abort.
inline constexpr int waits_of_an_abort = 2;
/// The keeper of an owner's process waits one abort_timeout longer.
inline constexpr int keeper_waits_of_an_abort = waits_of_an_abort + 1;

/// In a pool, a job that kills owners is skipped and the other jobs continue.
[[nodiscard]] supervision::owner_settings rules_of(const config& settings, bool pool);

/// The mark of the upload that the owner's sink is working on.
[[nodiscard]] std::optional<std::uint32_t> in_hand(const arena::flight_reading& flight);
[[nodiscard]] supervision::owner_sign sign_of(std::int32_t pid, const arena::flight_reading& flight);

/// For messages: "the GPU owner (pid 4711)", or that the owner is inside this process.
[[nodiscard]] std::string owner_in_words(std::int32_t pid);
/// How the process ended and what it was working on.
[[nodiscard]] std::string death_in_words(const supervision::owner_died& death);
[[nodiscard]] std::vector<gpu_process> processes_in(const protocol::gpu_processes_seen& news);

}  // namespace penstock::supervisor
