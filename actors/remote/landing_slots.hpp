// The slots in the session's arena into which one remote worker's batches may be received, and which batch each of them
// waits for (rule H3). Used by remote_connection.
#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/remote/host_messages.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/base/layout.hpp"

#include <penstock/dataset.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::hosts {

class landing_slots {
 public:
  /// Maps the slots. Refuses (errc::system).
  result<void> assign(const protocol::assign_slots& slots, const std::vector<tensor_spec>& tensors, int arena);
  void leased(const protocol::load_batch& lease);
  void landed(std::uint32_t slot) { leases_.erase(slot); }
  /// How many batches are still expected.
  [[nodiscard]] std::size_t waiting() const noexcept { return slots_ ? leases_.size() : 0; }
  /// Call when a new worker takes the place.
  void forget_leases() { leases_.clear(); }
  /// Call when the worker has ended: no batch may be received any more.
  void unmap() { slots_.reset(); }

  /// Whether a batch of that many bytes fits a slot at all.
  [[nodiscard]] bool holds(std::uint64_t bytes) const noexcept { return slots_ && bytes <= layout_.bytes; }
  [[nodiscard]] std::uint64_t slot_bytes() const noexcept { return layout_.bytes; }
  /// Why these bytes must not be received into the slot; empty: they may. `late`: no lease waits for them any longer, which is
  /// not the host's fault.
  [[nodiscard]] std::string misfit(const batch_follows& batch, bool& late) const;
  /// Call only if holds() is true and misfit() is empty.
  [[nodiscard]] std::span<std::byte> room(const batch_follows& batch) const {
    return slots_->slot(batch.slot).first(batch.bytes);
  }

 private:
  struct lease {
    std::uint32_t generation = 0;
    std::size_t samples = 0;
  };

  std::optional<arena::slots_view> slots_;
  batch_layout layout_;
  std::map<std::uint32_t, lease> leases_;  // by slot
};

}  // namespace penstock::hosts
