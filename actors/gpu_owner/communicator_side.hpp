// The communicator of this rank's group, in the process that has the GPU: made, watched and aborted by the owner's thread,
// used by the device program on its own. communicator_book decides; this class calls NCCL and tells the news.
//
//   the owner's thread     follow (orders of the group), look (progress, deadlines): never waits for the program
//   the program's thread   wait_until_usable, and what communicator_use calls: waits for the owner's thread, with deadlines
#pragma once

#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/local/news.hpp"
#include "runtime/device/nccl.hpp"
#include "runtime/group/communicator_book.hpp"

#include <penstock/nccl.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>

namespace penstock::gpu_owner {

class communicator_side final : public Communicator {
 public:
  struct surroundings {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    group::communicator_limits limits{};
    owner_news* news = nullptr;  ///< outlives it
  };
  explicit communicator_side(surroundings around) : around_(around), book_(around.limits) {}
  ~communicator_side() override = default;

  // ---- the owner's thread, whose current device is the rank's

  /// `on_host`: the device is the host device, where NCCL cannot work.
  void follow(const communicate& order, bool on_host);
  /// When to call it again.
  steady_time look(steady_time now);

  // ---- the program's thread

  [[nodiscard]] std::uint32_t rank() const noexcept override { return around_.rank; }
  [[nodiscard]] std::uint32_t world_size() const noexcept override { return around_.world_size; }
  /// False after that time.
  bool wait_until_usable(nanoseconds at_most);
  /// Of the present one, or the last.
  [[nodiscard]] std::uint64_t number() const;
  /// That one is not usable any more: what the program did with it does not count.
  [[nodiscard]] bool is_lost(std::uint64_t number) const;
  /// Waits until nothing of a lost one is left. False after that time.
  bool wait_until_gone(nanoseconds at_most);

 private:
  entry enter() override;
  void leave() noexcept override;
  void* function(const char* name) override;
  void settle(int status, const char* what) override;

  bool open_library(bool on_host);
  void draw_id(std::uint64_t number);
  void begin(const group::begin_making& order);
  void abort(std::uint64_t number);
  void watch_progress();

  const surroundings around_;
  std::shared_ptr<const device::nccl_library> library_;  // set before any communicator
  mutable std::mutex mutex_;                             // guards the members below
  std::condition_variable changed_;
  group::communicator_book book_;
  std::unique_ptr<device::nccl_communicator> communicator_;  // replaced only while no scope is open
};

}  // namespace penstock::gpu_owner
