// How the keeper of the GPU owner's process handles the communicator of a group (rules O8 and C1-C8): which
// orders the process gets, when they require a new process, and which of its deliveries count. Pure; events
// in, orders out. Used by owner_keeper only.
//
// A delivery counts once all ranks have a snapshot that covers it; until then it is held with its snapshot.
// When the group makes a new communicator, all ranks continue from the last step that counts. A process whose
// program is further ahead, or that started from an earlier snapshot, is replaced by one that gets the
// snapshot of that step.
//
// The states of the owner's process with respect to its communicator. A process can be a member of only one communicator, so
// a spent process is replaced. If the communicator was aborted before it was made, the process can make another.
//
//          ready()            make sent               made                  aborted
//   gone ----------> unused -------------> making -------------> member -------------> spent
//    ^                 ^                     |
//    |                 +------ aborted ------+
//    +---- ended(), from each: the communicator of a process that was making or a member is broken, then aborted
//
// A make order is held back while there is no process, or until a process that started from an outdated snapshot has been
// replaced. An abort order is answered at once, unless the process is making a communicator or a member of one; then the
// process must answer by a deadline.
//
// What becomes of deliveries:
//
//   deliveries of a process --> held --agreed--> acknowledged, its snapshot kept for the next process
//                                |  the process is lost: its snapshots stay held, the batches are ordered again
//                                |  new communicator: deliveries beyond the agreed step are dropped
#pragma once

#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/group/group_messages.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

class owner_communicator {
 public:
  static constexpr nanoseconds look_every{250'000'000};

  /// What the keeper must do, in this order.
  struct orders {
    std::vector<protocol::batches_delivered> agreed;  ///< these deliveries now count
    std::optional<std::string> snapshot;              ///< covers all deliveries that count
    std::optional<std::vector<std::uint64_t>> held;   ///< the steps with snapshots, for the group
    std::vector<group::communicator_state> told;      ///< reports to the group
    std::vector<protocol::wire_communicate> send;     ///< orders to the process
    bool replace = false;                             ///< whether to replace the process
  };

  explicit owner_communicator(nanoseconds abort_timeout);

  [[nodiscard]] orders ordered(const gpu_owner::communicate& order, steady_time now);
  /// Call when the keeper introduces a process. Returns the step of the snapshot that this process gets.
  [[nodiscard]] std::uint64_t introduced();
  /// Call when the process has opened the device.
  [[nodiscard]] orders ready();
  /// Call when the process has taken all batches before `step`.
  [[nodiscard]] orders delivered(std::uint64_t step, protocol::batches_delivered news);
  [[nodiscard]] orders told(const group::communicator_state& state);
  /// Call when the process has created the NCCL id for the communicator with this number.
  void drawn(std::uint64_t number);
  /// Call when the process is gone. `finished`: its program had finished, so no other rank has lost anything.
  [[nodiscard]] orders ended(bool finished);
  /// Call every `look_every`. Time during which the keeper did not run does not count (rule G23).
  [[nodiscard]] orders look(steady_time now);

 private:
  enum class process : std::uint8_t { gone, unused, making, member, spent };
  struct held {
    std::uint64_t step = 0;
    protocol::batches_delivered news;
    bool counts = true;  // whether its process is still running
  };

  void agree(std::uint64_t step, orders& to);
  void make(const gpu_owner::communicate& order, orders& to);
  [[nodiscard]] bool hears() const noexcept { return at_ != process::gone; }
  [[nodiscard]] bool must_go() const noexcept { return at_ == process::member || at_ == process::spent; }
  [[nodiscard]] bool refuse_lost_id(orders& to);
  void send_make(orders& to);
  void abort(std::uint64_t number, steady_time now, orders& to);
  [[nodiscard]] std::vector<std::uint64_t> steps() const;

  std::deque<held> held_;     // ascending steps; at most group::held_max
  std::uint64_t agreed_ = 0;  // no rank goes back to an earlier step
  std::uint64_t kept_ = 0;    // the step of the snapshot for the next process
  std::uint64_t given_ = 0;   // the step of the snapshot that the current process got
  bool free_ = false;         // the group has ended, so every step counts as agreed
  process at_ = process::gone;
  std::uint64_t number_ = 0;  // the communicator that the process is making or a member of; 0: none
  std::optional<gpu_owner::communicate> to_make_;  // held back
  std::uint64_t to_draw_ = 0;                      // the communicator whose id the group wants; 0: none
  std::uint64_t drawn_ = 0;                        // the communicator whose id the current process has created; 0: none
  std::uint64_t lost_id_ = 0;                      // the newest communicator whose id was created by a process that is gone
  patient_deadline abort_;                         // the deadline of the abort that was sent
  bool aborting_ = false;                          // the process has not answered the abort
};

}  // namespace penstock::supervisor
