#include "actors/remote/landing_slots.hpp"

#include <fmt/core.h>

namespace penstock::hosts {

result<void> landing_slots::assign(const protocol::assign_slots& slots, const std::vector<tensor_spec>& tensors, int arena) {
  auto layout = lay_out(tensors, slots.batch_size);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  layout_ = std::move(*layout);
  auto mapped = arena::slots_view::map(arena, {slots.slot_bytes, slots.slots, slots.partitions}, slots.partition);
  if (!mapped) return tl::unexpected(std::move(mapped.error()));
  slots_.emplace(std::move(*mapped));
  return {};
}

void landing_slots::leased(const protocol::load_batch& lease) {
  leases_[lease.slot] = {lease.generation, lease.samples.size()};
}

std::string landing_slots::misfit(const batch_follows& batch, bool& late) const {
  const auto lease = leases_.find(batch.slot);
  late = lease == leases_.end() || lease->second.generation != batch.generation;
  if (late) return fmt::format("slot {} is not waiting for generation {}", batch.slot, batch.generation);
  if (batch.rows > lease->second.samples)
    return fmt::format("it has {} rows, but {} samples were leased", batch.rows, lease->second.samples);
  if (const std::uint64_t right = layout_.used_bytes(batch.rows); batch.bytes != right)
    return fmt::format("{} rows have {} bytes, but {} were announced", batch.rows, right, batch.bytes);
  return {};
}

}  // namespace penstock::hosts
