// The communicator of a rank, in the process with the GPU. One thread, the keeper's, makes, watches and
// aborts the communicator; the program uses it on another thread. communicator_book decides; this class calls
// NCCL. Base of the classes for device programs in the GPU owner (actors/gpu_owner/communicator_side) and for
// Group (program_communicator).
//
//   the keeper's thread    make, abort (orders of the group), look (progress, deadlines): never waits for the program
//   the program's thread   what communicator_use calls: waits for the keeper's thread, with deadlines
#pragma once

#include "runtime/base/running_clock.hpp"
#include "runtime/device/nccl.hpp"
#include "runtime/group/communicator_book.hpp"

#include <penstock/nccl.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace penstock::group {

class rank_communicator : public Communicator {
 public:
  // Any thread.

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t world_size() const noexcept override { return world_size_; }
  [[nodiscard]] bool is_lost(std::uint64_t number) const override;
  /// The number of the current communicator, or else of the last one.
  [[nodiscard]] std::uint64_t number() const;

  // Call on the keeper's thread, whose current device must be the rank's GPU.

  /// Returns when to call it again. `never` means: after the next order.
  steady_time look(steady_time now);

 protected:
  rank_communicator(std::uint32_t rank, std::uint32_t world_size, communicator_limits limits)
      : book_(limits), rank_(rank), world_size_(world_size), limits_(limits) {}
  ~rank_communicator() override = default;

  /// The communicator's state has changed. Called while mutex_ is held, so an implementation may only send a message.
  virtual void told(const communicator_state& state) = 0;
  /// The abort is impossible. Like told(), called while mutex_ is held.
  virtual void stuck(const std::string& why) = 0;

  /// Call once, before any order.
  void use(std::shared_ptr<const device::nccl_library> library) { library_ = std::move(library); }
  [[nodiscard]] const std::shared_ptr<const device::nccl_library>& library() const { return library_; }

  // Orders of the group. Call from any thread; the keeper's thread must then call look().

  void order_making(std::uint64_t number, std::string id);
  void order_abort(std::uint64_t number);
  /// Ends the communicator without an order of the group: reports it to the group as broken, and aborts it,
  /// even if it is still being made. No other communicator is made, and no use waits for one.
  void order_end();
  /// Finds deadlines that passed while the keeper's thread hangs in an NCCL call.
  /// Call it on another thread.
  void check_deadlines(steady_time now);

  /// Waits until there is a communicator, or until no pending order will make one.
  entry enter() override;
  void leave() noexcept override;
  void* function(const char* name) override;
  void settle(int status, const char* what) override;
  /// Throws the error for a program that has lost this communicator.
  [[noreturn]] static void throw_lost(std::uint64_t number);

  mutable std::mutex mutex_;  // guards the members below
  mutable std::condition_variable changed_;
  communicator_book book_;
  /// The book's clock: time during which this process did not run does not count against its program or NCCL
  /// (rule G23).
  running_clock clock_{std::chrono::steady_clock::now(), std::chrono::milliseconds(100)};
  std::unique_ptr<device::nccl_communicator> communicator_;  // replaced only while no use is open

 private:
  void collect(steady_time now);
  [[nodiscard]] std::optional<communicator_command> next_command(steady_time now);
  void carry_out(const begin_making& order);
  void carry_out(const begin_abort& order);
  void watch_progress();

  const std::uint32_t rank_;
  const std::uint32_t world_size_;
  const communicator_limits limits_;
  std::shared_ptr<const device::nccl_library> library_;
  bool ended_ = false;                      // set by order_end(); guarded by mutex_
  std::deque<communicator_command> to_do_;  // commands for the keeper's thread: begin_making, begin_abort
};

}  // namespace penstock::group
