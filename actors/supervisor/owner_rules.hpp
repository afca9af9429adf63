// The supervision rules for the GPU owner's process, from the config; the owner's name in messages; and the
// times at which a batch passes its stages. Used by the owner's keeper.
#pragma once

#include "actors/protocol/messages.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/supervision/owner_supervision.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <string>
#include <vector>

namespace penstock::supervisor {

/// For starting a GPU owner's process: creating a context and registering the arena takes long.
inline constexpr nanoseconds owner_start_deadline = std::chrono::seconds(120);

/// In a pool, a job that kills owners is skipped and the other jobs continue.
[[nodiscard]] supervision::owner_settings rules_of(const config& settings, bool pool);

/// For messages: "the GPU owner (pid 4711)", or that the owner is inside this process.
[[nodiscard]] std::string owner_in_words(std::int32_t pid);
/// How the process ended and what it was working on.
[[nodiscard]] std::string death_in_words(const supervision::owner_died& death);
[[nodiscard]] std::vector<gpu_process> processes_in(const protocol::gpu_processes_seen& news);

/// Records that a batch was copied. The owner's own times arrive only with its acknowledgement; until then
/// this shows where the batch is. A conversion takes no longer than the message. Both pointers may be null.
void note_copied(batch_times* times, const upload_order* batch, steady_time now);
/// `times` may be null.
void note_times(batch_times* times, stream_position position, const protocol::wire_delivery& delivery);

}  // namespace penstock::supervisor
