// The main thread's work in the owner's process of a session: takes batches as they reach the device, gives
// them to the sink and acknowledges them, with snapshots if the sink keeps state. Used by owner_body.
//
// In a group with a communicator, a batch waits until the communicator is usable. Batches that the sink's
// state already contains are counted but not given to the sink. Snapshots are taken at the same positions in
// all ranks: at every 16th batch, and when no batch arrives for a moment (all ranks are then at the end, or
// waiting for each other).
#pragma once

#include "actors/gpu_owner/batch_body.hpp"
#include "actors/gpu_owner/batch_sink.hpp"
#include "actors/gpu_owner/owner_jobs.hpp"
#include "actors/protocol/link.hpp"
#include "runtime/base/batch_times.hpp"

#include <atomic>

namespace penstock::gpu_owner {

/// What the session tells the owner about the stream. Thread-safe.
struct stream_marks {
  std::atomic<stream_position> base{0};  ///< the sink's state contains the batches before it
  std::atomic<bool> alone{false};        ///< the group has ended
  std::atomic<bool> whole{false};        ///< the stream is complete: the sink finishes at the end
};

class owner_batches {
 public:
  // The maximum number of acknowledgements in a message. They are collected while more batches are ready, but
  // only briefly; in a group with a communicator, until the next snapshot.
  static constexpr std::size_t deliveries_a_message = 16;

  struct deps {
    hand_over* consumer = nullptr;
    protocol::owners_session_link* link = nullptr;
    arena::flight_writer* flight = nullptr;  ///< may be null
    batch_times* times = nullptr;
    std::shared_ptr<const device::transfer_plan> plan;
    std::shared_ptr<batch_home> home;
    std::shared_ptr<device::device> device;
    std::shared_ptr<communicator_side> communicator{};  ///< null: no group, or its group has none
    const protocol::open_owner* order = nullptr;
    const config* settings = nullptr;
    std::function<upload_counts()> counts;
    const stream_marks* marks = nullptr;
  };

  explicit owner_batches(deps deps) : deps_(std::move(deps)) {}

  /// Runs until the session stops it. Fails when the device or the sink fails, and with errc::group_failed
  /// when this process must be replaced by one that continues from the last agreed snapshot.
  result<void> run();

 private:
  result<void> open_sink();
  /// `demanded`: when the sink became free for the batch.
  result<void> deliver(ready_batch ready, steady_time demanded);
  result<void> put_in_sink(const Batch& batch, bool is_known);
  result<void> acknowledge();
  result<void> acknowledge_if_due(stream_position last);
  [[nodiscard]] bool wait_for_group(stream_position position) const;
  [[nodiscard]] bool nothing_comes() const;

  deps deps_;
  std::unique_ptr<batch_sink> sink_;
  std::vector<protocol::wire_delivery> taken_;
  steady_time acknowledged_{};  // when deliveries were last reported to the session
  bool skipped_ = false;  // the sink did not get the batches in taken_: no snapshot is due
};

}  // namespace penstock::gpu_owner
