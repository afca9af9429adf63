// Messages to the GPU owner, or to the keeper of one in another process, which takes its place.
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

/// Buffers for batches of this plan.
struct prepare_device {
  std::shared_ptr<const device::transfer_plan> plan;
  arena::geometry shape;
  std::uint32_t buffers = 0;
  /// Allocate them with the first upload, and again with the next one if the device's memory did not suffice: then only
  /// that upload is refused (ready_batch::refused). For results of jobs.
  bool when_needed = false;
};

/// A worker's memory is reserved: map it for the device.
struct attach_partition {
  std::uint32_t partition = 0;
  std::shared_ptr<mapping> memory;  ///< none when the owner is another process, which maps it itself
  arena::geometry shape;
};

struct upload_batches {
  std::vector<upload_order> orders;
};

/// From the device's own threads: poll the device.
struct device_moved {};

/// The consumer has returned buffers: hand_over has them.
struct buffers_released {};

/// What the group orders about its communicator (rules C1-C5).
struct communicate {
  enum class act : std::uint8_t {
    draw_id,  ///< answer with the id of a new one
    make,
    abort,
    agreed,  ///< nobody takes back what lies before `agreed`
    free,    ///< the group is over: this rank waits for nobody any more
    end,     ///< not from the group: this owner ends, and with it whatever communicator it has
  };
  act what = act::draw_id;
  std::uint64_t number = 0;
  std::string id{};
  std::uint64_t agreed = 0;  ///< also of `make`: where all ranks go on
};

/// From itself, while there is a communicator.
struct look_at_communicator {};

/// From itself, while uploads are in flight: check for progress.
struct look_at_device {};

/// An owner in another process closes in two steps: first its process, then its keeper.
struct close_device {
  bool whole = false;                              ///< the stream is complete: sinks may finish
  bool leave = true;                               ///< the actor ends
  nanoseconds at_most = std::chrono::seconds(10);  ///< its process, if separate, is killed after this time
};

}  // namespace penstock::gpu_owner
