// The order to copy one slot to the device, passed from the scheduler through owner_orders to the GPU owner.
#pragma once

#include "runtime/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Extra facts about an upload that is a job's result, not a batch.
struct job_upload {
  static constexpr std::uint32_t no_program = 0xffff'ffff;

  std::uint64_t offset = 0;            ///< where the result is in its slot
  std::uint64_t bytes = 0;             ///< size of the result; 0 is valid
  std::uint32_t program = no_program;  ///< the program's index in [jobs] programs, sorted by name
  bool kept = false;                   ///< the caller gets the buffer, and returns it later
  std::string function;                ///< the function that made it; for messages
};

struct upload_order {
  std::uint64_t upload = 0;  ///< identifies it in acknowledgements; increasing, never reused
  std::uint64_t era = 0;     ///< how many owners had been lost when this was ordered
  std::uint64_t seek_number =
      0;  ///< number of the session's last seek when this was ordered; batches from before a seek are dropped
  stream_position position = 0;  ///< the batch's position; for a job's result, the job's number
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;  ///< the batch's index within its epoch
  std::uint32_t partition = 0;
  std::uint32_t slot = 0;
  std::vector<std::uint64_t> samples;  ///< sample indices of the rows, in order
  std::optional<job_upload> job = std::nullopt;
};

}  // namespace penstock
