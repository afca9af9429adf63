// The communicator of this rank's group, in the GPU owner's process: the owner's thread keeps it, the device program uses
// it on its own (runtime/group/nccl/rank_communicator). This class follows the session's orders and tells it the news.
#pragma once

#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/local/news.hpp"
#include "runtime/group/nccl/rank_communicator.hpp"

namespace penstock::gpu_owner {

class communicator_side final : public group::rank_communicator {
 public:
  struct surroundings {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    group::communicator_limits limits{};
    owner_news* news = nullptr;  ///< outlives it
  };
  explicit communicator_side(const surroundings& around)
      : rank_communicator(around.rank, around.world_size, around.limits), news_(around.news) {}
  ~communicator_side() override = default;

  /// On the owner's thread, which looks afterwards. `on_host`: the device is the host device, where NCCL cannot work.
  void follow(const communicate& order, bool on_host);

  // Finds what hangs while the owner's thread is held up in a call of NCCL. From another one.
  using rank_communicator::check_deadlines;

  // ---- the program's thread

  /// False after that time.
  bool wait_until_usable(nanoseconds at_most);
  /// Waits until nothing of a lost one is left. False after that time.
  bool wait_until_gone(nanoseconds at_most);

 private:
  void told(const group::communicator_state& state) override { news_->communicator_changed(state); }
  void stuck(const std::string& why) override { news_->communicator_stuck(why); }
  bool open_library(bool on_host);
  void draw_id(std::uint64_t number);

  owner_news* news_;
};

}  // namespace penstock::gpu_owner
