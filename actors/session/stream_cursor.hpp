// The consumer's position in the stream, and what its next request needs. Decides and records; the session
// acts. Used only by the session.
//
// Threads: any thread may call open(), give_up() and transfer(); only the thread that takes batches calls the
// rest.
#pragma once

#include "runtime/base/ids.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/device/transfer_plan.hpp"
#include "runtime/schedule/delivery_front.hpp"
#include "runtime/schedule/ledger.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace penstock::session {

/// What an iteration over an epoch needs next.
enum class next_step : std::uint8_t {
  take,         ///< the epoch's next batch is next in the stream
  seek,         ///< the stream must seek before take
  epoch_over,   ///< the epoch's last batch has been taken
  stream_over,  ///< the same, and it was also the last batch prepared
};

class stream_cursor {
 public:
  /// `epochs`: the config's [sampler] epochs.
  explicit stream_cursor(std::uint64_t epochs) : epochs_(epochs) {}

  /// Call when the dataset is known: sets how the stream divides into batches, and which of them this session delivers.
  void open(std::shared_ptr<const plan> order, std::shared_ptr<const device::transfer_plan> transfer,
            schedule::stream_range range);
  /// Call when the stream will never open: wakes waiting threads.
  void give_up();
  /// The layout of batches on the device; null until the stream is open.
  [[nodiscard]] std::shared_ptr<const device::transfer_plan> transfer() const;

  /// Call when Session::next() is called: earlier ranges over epochs must then not continue.
  void begin_iteration() noexcept { ++iteration_; }
  /// Call when a range over an epoch requests a batch. `iteration` is the range's own number, initially 0:
  /// the range then becomes the current one, and this returns true. Throws error (errc::usage) if another
  /// range has started since.
  bool enter(std::uint64_t epoch, std::uint64_t& iteration);
  /// Waits until the stream is open; empty if it never opens. Throws error (errc::usage) if the epoch number
  /// is too large. `while_waiting` is session_options::while_waiting.
  [[nodiscard]] std::optional<schedule::stream_range> wait_for_epoch(
      std::uint64_t epoch, const std::function<void()>& while_waiting = {});
  [[nodiscard]] next_step step_in(schedule::stream_range epoch, bool from_its_first) const;

  struct seek_order {
    std::uint64_t number = 0;
    schedule::stream_range range;
    std::shared_ptr<const penstock::plan> plan;  ///< the new plan, if the seek changes it
  };
  /// Continues at the beginning of this range; batches of earlier seeks are dropped. A group's state can
  /// start the stream in the middle of an epoch. A seek to an earlier epoch then makes all epochs whole.
  seek_order begin_seek(schedule::stream_range range);
  [[nodiscard]] bool wants(std::uint64_t seek_number) const noexcept { return seek_number == seek_number_; }
  /// Call when the consumer takes a batch.
  void taken(stream_position position) { front_.add(position); }
  /// Call when the owner's process has delivered everything; no batch went through this process.
  void reach_end();

  /// Records that the stream has ended. False: already reported for this seek.
  bool end() noexcept;
  /// Whether everything that the config requests has been taken.
  [[nodiscard]] bool everything_taken() const;

 private:
  const std::uint64_t epochs_;
  mutable std::mutex mutex_;  // guards the next five members
  std::condition_variable changed_;
  std::shared_ptr<const plan> plan_;
  std::shared_ptr<const device::transfer_plan> transfer_;
  schedule::stream_range range_;
  bool given_up_ = false;

  // open() sets front_ once, before there is a batch.
  schedule::delivery_front front_;
  std::uint64_t seek_number_ = 0;
  std::uint64_t iteration_ = 0;
  bool ended_ = false;
};

}  // namespace penstock::session
