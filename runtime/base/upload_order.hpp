// The order to copy one slot to the device, passed from the scheduler through owner_orders to the GPU owner.
#pragma once

#include "runtime/base/ids.hpp"

#include <cstdint>
#include <vector>

namespace penstock {

struct upload_order {
  std::uint64_t upload = 0;       ///< names it in acknowledgements; grows, never used again
  std::uint64_t era = 0;          ///< how many owners had been lost when this was ordered
  std::uint64_t seek_number = 0;  ///< of the session when this was ordered: batches of earlier seeks are not wanted
  stream_position position = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;  ///< of the batch within its epoch
  std::uint32_t partition = 0;
  std::uint32_t slot = 0;
  std::vector<std::uint64_t> samples;  ///< of the rows, in order
};

}  // namespace penstock
