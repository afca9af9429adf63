// Messages to the GPU owner, or to the keeper that replaces it when the owner is another process.
#pragma once

#include "runtime/arena/arena.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/device/transfer_plan.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::gpu_owner {

struct open_device {};

/// Allocate buffers for batches of this plan.
struct prepare_device {
  std::shared_ptr<const device::transfer_plan> plan;
  arena::geometry shape;
  std::uint32_t buffers = 0;
  /// Allocate the buffers only with the first upload. If the device's memory does not suffice, only that
  /// upload is refused (ready_batch::refused), and the next one tries again. For job results.
  bool when_needed = false;
};

/// A worker's memory is reserved: map it for the device.
struct attach_partition {
  std::uint32_t partition = 0;
  std::shared_ptr<mapping> memory;  ///< null when the owner is another process, which maps it itself
  arena::geometry shape;
};

struct upload_batches {
  std::vector<upload_order> orders;
};

/// Sent by the device's own threads: poll the device.
struct device_moved {};

/// The consumer has returned buffers; take them from hand_over.
struct buffers_released {};

/// The group's order about its communicator (rules C1-C5).
struct communicate {
  enum class act : std::uint8_t {
    draw_id,  ///< answer with the id of a new communicator
    make,
    abort,
    agreed,  ///< no rank goes back to a step before `agreed`
    free,    ///< the group has ended: this rank no longer waits for others
    end,     ///< this owner ends, and so does its communicator; not an order of the group
  };
  act what = act::draw_id;
  std::uint64_t number = 0;
  std::string id{};
  std::uint64_t agreed = 0;  ///< also set for `make`: where all ranks continue
};

/// A message to itself while there is a communicator: check it.
struct look_at_communicator {};

/// A message to itself while uploads are in flight: check for progress.
struct look_at_device {};

/// An owner in another process closes in two steps: first its process, then its keeper.
struct close_device {
  bool whole = false;                              ///< the stream is complete: sinks may finish
  bool leave = true;                               ///< the actor ends afterwards
  nanoseconds at_most = std::chrono::seconds(10);  ///< its process, if separate, is killed after this time
};

}  // namespace penstock::gpu_owner
