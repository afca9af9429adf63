// The GPU owner actor: the only holder of the device. It makes all calls to the device, except the
// consumer's, from its own thread (it is detached), in the order of its messages.
//
//   receives  open_device, prepare_device, attach_partition, upload_batches, buffers_released, communicate, close_device
//             device_moved (from its device), look_at_device, look_at_communicator (from itself)
//   sends     ready batches                       to the consumer, through hand_over
//             everything else                     through owner_listener: it knows no other actor
//   owns      the device, the mapped partitions, the ring of buffers
//
//   closed --open_device--> open --prepare_device--> ready --close_device--> closed
//                    any error: failed (reported once; later uploads are ignored)
//
// Uploads wait in a queue for a free buffer. The queue holds at most workers x slots uploads, since every
// upload holds a slot. Uploads are submitted, collected and handed over in bursts: with small batches, one
// message, wake-up or lock per batch would cost more than the copy.
#pragma once

#include "actors/gpu_owner/communicator_side.hpp"
#include "actors/gpu_owner/hand_over.hpp"
#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/device/device.hpp"

#include <memory>

namespace penstock::actors {
class actor_system;
}

namespace penstock::gpu_owner {

/// The name of the owner's thread in /proc and in debuggers.
inline constexpr char owner_thread_name[] = "penstock-owner";

struct owner_deps {
  std::shared_ptr<device::device> device;
  std::shared_ptr<hand_over> consumer;
  owner_listener* listener = nullptr;          ///< outlives the actor
  std::shared_ptr<batch_times> times;  ///< records the times of batch stages; may be null
  /// The group's communicator; null: none.
  std::shared_ptr<communicator_side> communicator{};
  /// A copy or kernel that takes longer counts as hung. Measured only while uploads are in flight and the
  /// owner's thread is running.
  nanoseconds flight_deadline = std::chrono::seconds(30);
};

gpu_owner_actor spawn_gpu_owner(actors::actor_system& system, owner_deps deps);

}  // namespace penstock::gpu_owner
