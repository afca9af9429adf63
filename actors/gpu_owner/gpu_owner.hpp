// The GPU owner actor: the only holder of a device. Every call to the device but the consumer's comes from
// its one thread (it is detached), in the order of its messages.
//
//   hears   open_device, prepare_device, attach_partition, upload_batches, buffers_released, close_device
//           device_moved (from its device), look_at_device (from itself)
//   says    opened, failed                        to the session
//           slots_released                        to the scheduler
//           ready batches                         to the consumer, through hand_over
//   owns    the device, the mapped partitions, the ring of buffers
//
//   closed --open_device--> open --prepare_device--> ready --close_device--> closed
//                    any error: failed (reported once; later uploads are ignored)
//
// Uploads wait in a queue for a free buffer. Its bound: workers x slots, since every upload holds a slot.
// Whatever waits is submitted, collected and handed over in bursts: with small batches a message, a wake-up
// or a lock for each of them would cost more than its copy.
#pragma once

#include "actors/gpu_owner/hand_over.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/device/device.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_actor.hpp>

#include <functional>
#include <memory>

namespace caf {
class actor_system;
}

namespace penstock::gpu_owner {

/// The name of the owner's thread in /proc and in debuggers.
inline constexpr char owner_thread_name[] = "penstock-owner";

struct open_device {};

/// Buffers for batches of this plan.
struct prepare_device {
  std::shared_ptr<const device::transfer_plan> plan;
  arena::geometry shape;
  std::uint32_t buffers = 0;
};

/// A worker's memory, reserved: map it for the device.
struct attach_partition {
  std::uint32_t partition = 0;
  std::shared_ptr<mapping> memory;  ///< none when the owner is another process, which maps it itself
  arena::geometry shape;
};

struct upload_order {
  std::uint64_t upload = 0;
  std::uint64_t era = 0;  ///< how many owners had been lost when this was ordered
  std::uint64_t seek_number = 0;
  stream_position position = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t partition = 0;
  std::uint32_t slot = 0;
  std::vector<std::uint64_t> samples;
};
struct upload_batches {
  std::vector<upload_order> orders;
};

/// From the device's own threads: poll it.
struct device_moved {};

/// The consumer is done with buffers: hand_over has them.
struct buffers_released {};

/// From itself, while uploads are under way: is there progress?
struct look_at_device {};

/// An owner in another process closes in two steps: first its process, then the actor that speaks for it.
struct close_device {
  bool whole = false;                              ///< the stream is over: sinks may finish
  bool leave = true;                               ///< the actor ends
  nanoseconds at_most = std::chrono::seconds(10);  ///< then its process, if it has one of its own, is killed
};

/// Whom the owner reports to: plain functions, so that it knows no other actor. Called on the owner's thread.
struct owner_surroundings {
  std::shared_ptr<device::device> device;
  std::shared_ptr<hand_over> consumer;
  std::function<void(const device::identity&)> opened;
  std::function<void(const failure&)> failed;
  std::function<void(std::vector<std::uint64_t> uploads)> slots_released;
  /// After each burst: finished uploads and their bytes, and whether the device reads the arena directly.
  std::function<void(std::uint64_t uploads, std::uint64_t bytes, bool pinned)> progressed;
  std::shared_ptr<batch_times> times;  ///< where the stages of batches are stamped; may be null
  /// A copy or kernel that has not ended by then never will. Counted only while something is under way, and only
  /// while the owner's thread runs.
  nanoseconds flight_deadline = std::chrono::seconds(30);
};

}  // namespace penstock::gpu_owner

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::open_device)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::prepare_device)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::attach_partition)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::upload_batches)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::device_moved)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::buffers_released)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::look_at_device)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::gpu_owner::close_device)

namespace penstock::gpu_owner {

/// What others may say to an owner: to this one, or to the keeper of one in another process.
using gpu_owner_actor = caf::typed_actor<caf::reacts_to<open_device>, caf::reacts_to<prepare_device>,
                                         caf::reacts_to<attach_partition>, caf::reacts_to<upload_batches>,
                                         caf::reacts_to<buffers_released>, caf::reacts_to<close_device>>;

gpu_owner_actor spawn_gpu_owner(caf::actor_system& system, owner_surroundings around);

}  // namespace penstock::gpu_owner
