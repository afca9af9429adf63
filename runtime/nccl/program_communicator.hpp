// The communicator of a program that embeds penstock: the implementation behind Group (penstock/group.hpp). A
// separate thread keeps it, in the program's CUDA context: that thread calls NCCL to make and abort the communicator,
// because both may hang. The program's thread calls NCCL while it uses the communicator.
// Orders come from program_group's I/O thread, which also detects expired deadlines.
//
// If a communicator that the program has used is lost, one use throws: the use that notices the loss, or the
// next one. Later uses wait for the next communicator.
//
// The thread shares this object: a thread that hangs in NCCL is abandoned, and its Group can end.
#pragma once

#include "runtime/group/communicator_keeper.hpp"
#include "runtime/nccl/program_gpu.hpp"
#include "runtime/nccl/rank_communicator.hpp"
#include "runtime/process/side_thread.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace penstock::group {

class program_communicator final : public rank_communicator,
                                   public communicator_keeper,
                                   public std::enable_shared_from_this<program_communicator> {
 public:
  struct deps {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::optional<std::uint32_t> local_rank{};
    communicator_limits limits{};
    nanoseconds patience{};  ///< how long a program waits for a usable communicator
    /// Throws the first cause if the group is over. Called on the program's thread. So is while_waiting.
    std::function<void()> check{};
    /// Called about every 50 ms while the program waits; its exceptions end the wait. May be empty.
    std::function<void()> while_waiting{};
  };
  /// Call it on the program's thread. Refuses (errc::config,
  /// device_unavailable) if there is no suitable NCCL or no GPU.
  static result<std::shared_ptr<program_communicator>> open(deps deps);
  ~program_communicator() override = default;

  /// The UUID of its GPU, "GPU-..."; empty: unknown, or host memory.
  [[nodiscard]] const std::string& device() const noexcept { return gpu_.uuid(); }
  /// After close(): waits until the communicator is completely gone, or until an abort's time limit has
  /// passed. Returns false if `until` came first; call again to continue.
  bool wait_until_gone(steady_time until);

  void report_to(communicator_listener* listener) override;
  void draw(std::uint64_t number) override;
  void make(std::uint64_t number, const std::string& id) override;
  void abort(std::uint64_t number) override;
  void close() override;
  void find_late_calls(steady_time now) override { check_deadlines(now); }

 private:
  explicit program_communicator(deps deps);

  void told(const communicator_state& state) override;
  void stuck(const std::string& why) override;
  entry enter() override;
  void settle(int status, const char* what) override;

  void run();
  void draw_id(std::uint64_t number);
  void wake();

  const deps deps_;
  program_gpu gpu_;
  process::side_thread thread_{"penstock-nccl"};
  // Guarded by mutex_.
  communicator_listener* listener_ = nullptr;
  bool started_ = false;
  bool closed_ = false;
  bool ordered_ = false;  // the thread has something to do
  std::optional<std::uint64_t> to_draw_;
  std::string stuck_;            // why this process can never have a communicator again
  std::string trouble_;          // why the last communicator failed
  std::uint64_t used_ = 0;       // the last communicator that the program used; 0: none
  std::uint64_t told_lost_ = 0;  // the last communicator whose loss was reported to the program
  steady_time gone_by_ = never;  // the deadline of close(), by clock_
};

}  // namespace penstock::group
