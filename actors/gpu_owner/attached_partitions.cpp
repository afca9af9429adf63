#include "actors/gpu_owner/attached_partitions.hpp"

namespace penstock::gpu_owner {

result<attached_partitions::place> attached_partitions::find(const upload_order& order,
                                                             std::uint32_t rows_max) const {
  const auto it = all_.find(order.partition);
  const std::uint32_t slots = it == all_.end() ? 0 : it->second.shape.slots;
  const std::uint64_t slot_bytes = it == all_.end() ? 0 : it->second.shape.slot_bytes;
  if (order.job && (order.slot >= slots || order.job->offset > slot_bytes ||
                    order.job->bytes > slot_bytes - order.job->offset)) {
    return refuse(errc::protocol,
                  "the result of job {} is not in the arena: it would be {} bytes at offset {} of slot {} of "
                  "partition {}",
                  order.position, order.job->bytes, order.job->offset, order.slot, order.partition);
  }
  if (!order.job && (order.slot >= slots || order.samples.size() > rows_max)) {
    return refuse(errc::protocol,
                  "batch {} of epoch {} is not in the arena: it would be in slot {} of partition {} with {} "
                  "rows, but {} partitions are attached, and this one has {} slots for {} rows",
                  order.sequence, order.epoch, order.slot, order.partition, order.samples.size(), all_.size(),
                  slots, rows_max);
  }
  const std::uint64_t offset = it->second.shape.slot_offset(order.slot) + (order.job ? order.job->offset : 0);
  return place{it->second.memory->bytes().subspan(offset, order.job ? order.job->bytes : slot_bytes), offset};
}

}  // namespace penstock::gpu_owner
