// Splits or shortens messages that the user's settings can make too large for a frame (wire.hpp,
// frame_bytes_max). Pure; called before sending.
#pragma once

#include "actors/protocol/wire.hpp"

#include <vector>

namespace penstock::protocol {

/// Splits the uploads, in order, into messages that each fit a frame. A single upload always fits: 65536
/// samples x 8 bytes, plus its own numbers.
[[nodiscard]] std::vector<upload_slots> split_to_fit(std::vector<wire_upload> uploads);

/// Splits job results in the same way. A single one always fits: its function name has at most 200 bytes.
[[nodiscard]] std::vector<upload_jobs> split_to_fit(std::vector<wire_job_upload> uploads);

/// Splits acknowledgements of copies in the same way.
[[nodiscard]] std::vector<slots_copied> split_to_fit(std::vector<std::uint64_t> uploads);

/// A batch of 65536 failed samples with long names and reasons would not fit a frame. Cuts names and reasons
/// to an equal share of the space and ends them with "..."; shorter ones stay unchanged.
void cut_to_fit(batch_loaded& report);

}  // namespace penstock::protocol
