// The communicator of a rank, in the process that has the GPU: made, watched and aborted by one thread, its keeper's; used
// by the program on its own. communicator_book decides, this class calls NCCL. Base of what the GPU owner has for device
// programs (actors/gpu_owner/communicator_side) and of what Group has for programs (program_communicator).
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
  /// Of the present one, or the last.
  [[nodiscard]] std::uint64_t number() const;

  // The keeper's thread, whose current device is the rank's.

  /// When to call it again; never: after an order.
  steady_time look(steady_time now);

 protected:
  rank_communicator(std::uint32_t rank, std::uint32_t world_size, communicator_limits limits)
      : book_(limits), rank_(rank), world_size_(world_size), limits_(limits) {}
  ~rank_communicator() override = default;

  /// How far it is. Called with mutex_ held: may send a message, and no more.
  virtual void told(const communicator_state& state) = 0;
  /// The abort cannot be done. Like told().
  virtual void stuck(const std::string& why) = 0;

  /// Once, before any order.
  void use(std::shared_ptr<const device::nccl_library> library) { library_ = std::move(library); }
  [[nodiscard]] const std::shared_ptr<const device::nccl_library>& library() const { return library_; }

  // Orders of the group: any thread; the keeper's has to look then.

  void order_making(std::uint64_t number, std::string id);
  void order_abort(std::uint64_t number);
  /// Not of the group, which hears that it is broken: aborts whatever there is or is about to be. None is made any more,
  /// and no use waits for one.
  void order_end();
  /// Finds deadlines that have passed while the keeper's thread is held up in a call of NCCL. From another one.
  void check_deadlines(steady_time now);

  /// Waits until there is one, or by an order there will be none.
  entry enter() override;
  void leave() noexcept override;
  void* function(const char* name) override;
  void settle(int status, const char* what) override;
  /// What a program gets that has lost this one.
  [[noreturn]] static void throw_lost(std::uint64_t number);

  mutable std::mutex mutex_;  // guards the members below
  mutable std::condition_variable changed_;
  communicator_book book_;
  /// The book's: a process that stood still has not kept its program or NCCL from anything (rule G23).
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
  bool ended_ = false;                      // by order_end; guarded by mutex_
  std::deque<communicator_command> to_do_;  // by the keeper's thread: begin_making, begin_abort
};

}  // namespace penstock::group
