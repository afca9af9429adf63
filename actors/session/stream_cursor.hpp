// The consumer's position in the stream, and what its next request needs. Decides and records; the session
// acts. Used only by the session.
//
// Threads: open(), give_up() and transfer() from any thread; everything else from the one that takes batches.
#pragma once

#include "runtime/base/ids.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/device/transfer_plan.hpp"
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
  take,         ///< its next batch is the stream's next
  seek,         ///< the stream has to seek first, then take
  epoch_over,   ///< it has had its last batch
  stream_over,  ///< that was also the last batch prepared
};

class stream_cursor {
 public:
  /// The config's [sampler] epochs.
  explicit stream_cursor(std::uint64_t epochs) : epochs_(epochs) {}

  /// The dataset is known: how the stream divides into batches, and which of them this session delivers.
  void open(std::shared_ptr<const plan> order, std::shared_ptr<const device::transfer_plan> transfer,
            schedule::stream_range range);
  /// It will never open: wakes waiting threads.
  void give_up();
  /// None until it is open.
  [[nodiscard]] std::shared_ptr<const device::transfer_plan> transfer() const;

  /// Session::next(): ranges over epochs that were started before may not continue.
  void begin_iteration() noexcept { ++iteration_; }
  /// A range over an epoch asks for a batch. `iteration` is the range's own number, 0 at first: the range
  /// then becomes the current one, and this returns true. Throws error (errc::usage) if another range has
  /// been started since.
  bool enter(std::uint64_t epoch, std::uint64_t& iteration);
  /// Waits until the stream is open. Empty if it never opens. Throws error (errc::usage) for an epoch
  /// number that is too large. `while_waiting` is session_options::while_waiting.
  [[nodiscard]] std::optional<schedule::stream_range> wait_for_epoch(
      std::uint64_t epoch, const std::function<void()>& while_waiting = {});
  [[nodiscard]] next_step step_in(schedule::stream_range epoch, bool from_its_first) const;

  struct seek_order {
    std::uint64_t number = 0;
    schedule::stream_range range;
    std::shared_ptr<const penstock::plan> plan;  ///< the new plan, if it changes here
  };
  /// Continues at the beginning of this range; batches of earlier seeks are dropped. If the range is before
  /// the epoch that a group's state entered in its middle, all epochs from there on are whole ones.
  seek_order begin_seek(schedule::stream_range range);
  [[nodiscard]] bool wants(std::uint64_t seek_number) const noexcept { return seek_number == seek_number_; }
  /// A batch goes to the consumer.
  void taken(stream_position position) noexcept { next_ = position + 1; }
  /// The owner's process has delivered everything; no batch passed through here.
  void reach_end();

  /// The stream has ended. False: already reported for this seek.
  bool end() noexcept;
  /// Whether everything that the config requests has been taken.
  [[nodiscard]] bool everything_taken() const;

 private:
  const std::uint64_t epochs_;
  mutable std::mutex mutex_;  // guards the next five
  std::condition_variable changed_;
  std::shared_ptr<const plan> plan_;
  std::shared_ptr<const device::transfer_plan> transfer_;
  schedule::stream_range range_;
  bool given_up_ = false;

  // next_ is set once, by open(), before there is a batch.
  stream_position next_ = 0;
  std::uint64_t seek_number_ = 0;
  std::uint64_t iteration_ = 0;
  bool ended_ = false;
};

}  // namespace penstock::session
