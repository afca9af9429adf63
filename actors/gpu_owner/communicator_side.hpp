// The communicator of this rank's group, in the GPU owner's process: the owner's thread manages it, and the
// device program uses it on its own thread (runtime/nccl/rank_communicator). This class carries out the
// session's orders and reports back.
#pragma once

#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "runtime/nccl/rank_communicator.hpp"

namespace penstock::gpu_owner {

class communicator_side final : public group::rank_communicator {
 public:
  struct deps {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    group::communicator_limits limits{};
    owner_listener* listener = nullptr;  ///< outlives this object
  };
  explicit communicator_side(const deps& deps)
      : rank_communicator(deps.rank, deps.world_size, deps.limits), listener_(deps.listener) {}
  ~communicator_side() override = default;

  /// Call on the owner's thread, which polls the communicator afterwards. `on_host`: the device is the host
  /// device, on which NCCL does not work.
  void follow(const communicate& order, bool on_host);

  // Detects a hang while an NCCL call blocks the owner's thread. Call from another thread.
  using rank_communicator::check_deadlines;

  // ---- the program's thread

  /// Waits until the communicator is usable. False if it is not within that time.
  bool wait_until_usable(nanoseconds at_most);
  /// Waits until a lost communicator is completely gone. False if it is not within that time.
  bool wait_until_gone(nanoseconds at_most);

 private:
  void told(const group::communicator_state& state) override { listener_->communicator_changed(state); }
  void stuck(const std::string& why) override { listener_->communicator_stuck(why); }
  bool open_library(bool on_host);
  void draw_id(std::uint64_t number);

  owner_listener* listener_;
};

}  // namespace penstock::gpu_owner
