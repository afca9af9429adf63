// What the keeper of the GPU owner's process does about the communicator of a group (rules O8 and C1-C8): which orders the
// process gets, when it is replaced for them, and which of its deliveries count. Pure; events in, orders out. Used by
// owner_keeper alone.
//
// A delivery counts when all ranks have a snapshot that covers it: until then it is held with its snapshot. When a
// communicator is made anew, all ranks go on from the last step that counts: a process whose program is further, or that
// was started with an earlier snapshot, is replaced by one that gets the snapshot of that step.
//
//   deliveries of a process --> held --agreed--> acknowledged, its snapshot kept for the next process
//                                |  the process is lost: its snapshots stay held, the batches are ordered again
//                                |  made anew: what is beyond the agreed step is dropped
#pragma once

#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/group/group_messages.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

class owner_communicator {
 public:
  /// To be done in this order.
  struct orders {
    std::vector<protocol::batches_delivered> agreed;  ///< these count now
    std::optional<std::string> snapshot;              ///< that covers all that count
    std::optional<std::vector<std::uint64_t>> held;   ///< the steps of snapshots, for the group
    std::vector<group::communicator_state> told;      ///< to the group
    std::vector<protocol::wire_communicate> send;     ///< to the process
    bool replace = false;                             ///< the process
  };

  explicit owner_communicator(nanoseconds abort_timeout) : abort_timeout_(abort_timeout) {}

  [[nodiscard]] orders ordered(const gpu_owner::communicate& order, steady_time now);
  /// A process is introduced: the step that its snapshot holds.
  [[nodiscard]] std::uint64_t introduced();
  /// It has opened the device.
  [[nodiscard]] orders ready();
  /// It has taken all batches before `step`.
  [[nodiscard]] orders delivered(std::uint64_t step, protocol::batches_delivered news);
  [[nodiscard]] orders told(const group::communicator_state& state);
  /// It has drawn the id with this number.
  void drawn(std::uint64_t number);
  /// It is gone. `finished`: after its program had finished, so that no other rank has lost anything.
  [[nodiscard]] orders ended(bool finished);
  [[nodiscard]] orders look(steady_time now);

 private:
  struct held {
    std::uint64_t step = 0;
    protocol::batches_delivered news;
    bool counts = true;  // its process is there
  };

  void agree(std::uint64_t step, orders& to);
  void make(const gpu_owner::communicate& order, orders& to);
  [[nodiscard]] bool refuse_lost_id(orders& to);
  void abort(std::uint64_t number, steady_time now, orders& to);
  [[nodiscard]] std::vector<std::uint64_t> steps() const;

  nanoseconds abort_timeout_;
  std::deque<held> held_;                          // ascending steps; at most group::held_max
  std::uint64_t agreed_ = 0;                       // nobody goes back before this step
  std::uint64_t kept_ = 0;                         // the step of the snapshot for the next process
  std::uint64_t given_ = 0;                        // the step of the snapshot that the present process got
  bool ready_ = false;                             // the process takes orders
  bool used_ = false;                              // it had a communicator
  bool free_ = false;                              // the group is over: everything counts
  std::uint64_t sent_ = 0;                         // the communicator that the process has or makes; 0: none
  std::uint64_t to_draw_ = 0;                      // the id that is asked for; 0: none
  std::uint64_t drawn_ = 0;                        // the id that the present process has drawn; 0: none
  std::uint64_t lost_id_ = 0;                      // the last that a process drew which is gone
  std::optional<gpu_owner::communicate> to_make_;  // when the process is ready
  steady_time abort_due_ = never;
};

}  // namespace penstock::supervisor
