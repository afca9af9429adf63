// Makes messages whose size depends on the user's settings fit frames (wire.hpp, frame_bytes_max). Pure; used
// by their senders.
#pragma once

#include "actors/protocol/wire.hpp"

#include <vector>

namespace penstock::protocol {

/// Splits the uploads, in order, into messages that each fit a frame. One upload always fits: 65536
/// samples x 8 bytes + its own numbers.
[[nodiscard]] std::vector<upload_slots> split_to_fit(std::vector<wire_upload> uploads);

/// The same for results of jobs, each with the name of a function of at most 200 bytes.
[[nodiscard]] std::vector<upload_jobs> split_to_fit(std::vector<wire_job_upload> uploads);

/// The same for acknowledgements of copies.
[[nodiscard]] std::vector<slots_copied> split_to_fit(std::vector<std::uint64_t> uploads);

/// A batch of 65536 failed samples, each with a long name and a long reason, would not fit: names and reasons
/// are cut to an equal share of the room and end in "...". Shorter ones stay unchanged.
void cut_to_fit(batch_loaded& report);

}  // namespace penstock::protocol
