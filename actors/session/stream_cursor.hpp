// Where the consumer stands in the stream, and what its next demand needs. Decides and remembers; the session
// acts on it. Used by the session alone.
//
// Threads: open(), give_up() and transfer() from any; everything else from the thread that takes batches.
#pragma once

#include "runtime/base/ids.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/device/transfer_plan.hpp"
#include "runtime/schedule/ledger.hpp"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace penstock::session {

/// What an iteration over an epoch needs now.
enum class next_step : std::uint8_t {
  take,         ///< its next batch is the next of the stream
  seek,         ///< the stream has to go on elsewhere first, then take
  epoch_over,   ///< it has had its last batch
  stream_over,  ///< that was also the last that is prepared
};

class stream_cursor {
 public:
  /// The config's [sampler] epochs.
  explicit stream_cursor(std::uint64_t epochs) : epochs_(epochs) {}

  /// The dataset is known: how the stream is cut into batches, and which of them this session delivers.
  void open(std::shared_ptr<const plan> order, std::shared_ptr<const device::transfer_plan> transfer,
            schedule::stream_range range);
  /// It will never open: wakes whoever waits for it.
  void give_up();
  /// None until it is open.
  [[nodiscard]] std::shared_ptr<const device::transfer_plan> transfer() const;

  /// Session::next(): no range over an epoch that was begun before may go on.
  void begin_iteration() noexcept { ++iteration_; }
  /// A range over an epoch asks for a batch. `iteration` is its own, 0 at first: then it becomes the one that
  /// may go on, and this is true. Throws error (errc::usage) when another has begun since.
  bool enter(std::uint64_t epoch, std::uint64_t& iteration);
  /// Waits until the stream is open. Nothing if it never opens. Throws error (errc::usage) for an epoch that
  /// cannot be counted.
  [[nodiscard]] std::optional<schedule::stream_range> wait_for_epoch(std::uint64_t epoch);
  [[nodiscard]] next_step step_in(schedule::stream_range epoch, bool from_its_first) const;

  struct seek_order {
    std::uint64_t number = 0;
    schedule::stream_range range;
  };
  /// Goes on at the begin of this range; batches of earlier seeks are not wanted any more.
  seek_order begin_seek(schedule::stream_range range);
  [[nodiscard]] bool wants(std::uint64_t seek_number) const noexcept { return seek_number == seek_number_; }
  /// A batch goes to the consumer.
  void taken(stream_position position) noexcept { next_ = position + 1; }
  /// The owner's process has delivered everything; nothing passed through here.
  void reach_end();

  /// Nothing more comes. False: that was said before, for this seek.
  bool end() noexcept;
  /// Whether everything that the config asks for has been taken.
  [[nodiscard]] bool everything_taken() const;

 private:
  const std::uint64_t epochs_;
  mutable std::mutex mutex_;  // of the next five
  std::condition_variable changed_;
  std::shared_ptr<const plan> plan_;
  std::shared_ptr<const device::transfer_plan> transfer_;
  schedule::stream_range range_;
  bool given_up_ = false;

  // next_ is set once by open(), before there is a batch.
  stream_position next_ = 0;
  std::uint64_t seek_number_ = 0;
  std::uint64_t iteration_ = 0;
  bool ended_ = false;
};

}  // namespace penstock::session
