// One rank of a group with a communicator, for communicator_program_test.py: takes steps, each with an
// all-reduce whose result depends on all earlier steps, and agrees with the other ranks after a loss. Prints
// the result. Uses host memory with the stand-in of tests/fake_nccl, or a GPU with NCCL. Not a test by
// itself.
//
//   communicator_program STEPS [--wait] [--abort-timeout MS] [--patience MS] [--none] [--die RANK:STEP] [--odd RANK:WHAT:STEP] [--log DIR]
//
//   WHAT: holds    keeps its use open after a loss until the group has failed
//         returns  keeps its use open after a loss until the file "go" exists in --log DIR
//         leaves   leaves the group
#include "runtime/device/driver_library.hpp"
#include "tests/runtime/program_group/rank_main.hpp"

#include <penstock/group.hpp>
#include <penstock/nccl.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct wanted {
  std::uint64_t steps = 0;
  bool waits = false;
  bool none = false;  // no communicator
  std::chrono::milliseconds abort_timeout{10000};
  std::chrono::milliseconds patience{30000};
  std::string dies{};  // RANK:STEP
  std::string odd{};   // RANK:WHAT:STEP
  std::string log{};
};

wanted parse(int count, char** arguments) {
  wanted w;
  w.steps = std::strtoull(arguments[1], nullptr, 10);
  for (int i = 2; i < count; ++i) {
    const std::string_view name = arguments[i];
    if (name == "--wait") {
      w.waits = true;
      continue;
    }
    if (name == "--none") {
      w.none = true;
      continue;
    }
    const std::string value = arguments[++i];
    if (name == "--abort-timeout") w.abort_timeout = std::chrono::milliseconds(std::stoi(value));
    if (name == "--patience") w.patience = std::chrono::milliseconds(std::stoi(value));
    if (name == "--die") w.dies = value;
    if (name == "--odd") w.odd = value;
    if (name == "--log") w.log = value;
  }
  return w;
}

/// Numbers in memory that the communicator can use: GPU memory, through the driver, or plain memory for the stand-in.
class numbers {
 public:
  numbers(std::size_t count, bool on_gpu) : host_(memory_of(count)) {
    if (!on_gpu) return;
    const penstock::device::driver_library cuda("libcuda.so.1");
    int (*take)(std::uint64_t*, std::size_t) = nullptr;
    if (!cuda.find("cuMemAlloc_v2", take) || !cuda.find("cuMemcpyHtoD_v2", to_gpu_) ||
        !cuda.find("cuMemcpyDtoH_v2", from_gpu_) || take(&gpu_, count * sizeof(double)) != 0)
      throw std::runtime_error("no memory of the GPU");
  }
  [[nodiscard]] double* where() { return gpu_ != 0 ? reinterpret_cast<double*>(gpu_) : host_.data(); }
  void write(std::size_t at, double value) {
    host_[at] = value;
    if (gpu_ != 0) must(to_gpu_(gpu_ + at * sizeof value, &value, sizeof value));
  }
  /// Copies after the work that was queued before.
  [[nodiscard]] double read(std::size_t at) {
    double value = host_[at];
    if (gpu_ != 0) must(from_gpu_(&value, gpu_ + at * sizeof value, sizeof value));
    return value;
  }

 private:
  static void must(int status) {
    if (status != 0) throw std::runtime_error(fmt::format("copying: error {} of the driver", status));
  }
  /// Never freed: after a loss, queued work may read it until the communicator is aborted.
  static std::vector<double>& memory_of(std::size_t count) {
    static auto* const made = new std::vector<double>(count);
    return *made;
  }
  std::vector<double>& host_;
  std::uint64_t gpu_ = 0;
  int (*to_gpu_)(std::uint64_t, const void*, std::size_t) = nullptr;
  int (*from_gpu_)(void*, std::uint64_t, std::size_t) = nullptr;
};

/// Makes the primary context of this rank's GPU current on this thread, as cudaSetDevice does.
void select_gpu(std::uint32_t number) {
  const penstock::device::driver_library cuda("libcuda.so.1");
  int (*init)(unsigned) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*make_current)(void*) = nullptr;
  void* context = nullptr;
  if (!cuda.find("cuInit", init) || !cuda.find("cuDevicePrimaryCtxRetain", retain) ||
      !cuda.find("cuCtxSetCurrent", make_current) || init(0) != 0 ||
      retain(&context, static_cast<int>(number)) != 0 || make_current(context) != 0)
    throw std::runtime_error("the GPU cannot be selected");
}

class training {
 public:
  training(const wanted& w, penstock::Group& group, bool on_gpu)
      : w_(w), group_(group), memory_(2 + 2 * group.world_size(), on_gpu) {}

  void run() {
    while (step_ < w_.steps) {
      if (is_me(w_.odd, "leaves")) return;
      if (is_me(w_.dies, "")) die();
      try {
        share();
        take_step();
      } catch (const penstock::error& why) {
        // A group that has ended throws again, which ends the program.
        if (why.code() != penstock::errc::group_failed) throw;
        group_.check();
        ++losses_;
      }
    }
  }
  [[nodiscard]] std::string text() const {
    return fmt::format(
        "{{\"rank\": {}, \"steps\": {}, \"value\": \"{:a}\", \"losses\": {}, \"communicators\": {}}}",
        group_.rank(), step_, value_, losses_, seen_.size());
  }

 private:
  /// "RANK:WHAT:STEP", or "RANK:STEP" without `what`: whether this rank, in its first process, must act at this step.
  [[nodiscard]] bool is_me(const std::string& whom, const std::string& what) const {
    const char* const starts = std::getenv("PENSTOCK_GROUP_STARTS");
    if (starts != nullptr && std::string(starts) != "0") return false;
    return whom == fmt::format("{}:{}{}", group_.rank(), what.empty() ? "" : what + ":", step_);
  }

  /// After a new communicator, all ranks continue from the state of the one that is furthest ahead.
  void share() {
    penstock::Communicator& with = *group_.communicator();
    const std::uint32_t ranks = group_.world_size();
    std::uint64_t number = 0;
    {
      const penstock::communicator_use use(with);
      number = use.number();
      if (number == shared_) return;
      note(number);
      memory_.write(0, static_cast<double>(step_));
      use.all_gather(memory_.where(), memory_.where() + 2, 1, penstock::stream_handle{});
    }
    double most = -1;
    std::uint32_t who = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const double theirs = memory_.read(2 + r);
      if (theirs > most) most = theirs, who = r;
    }
    if (with.is_lost(number)) return;
    memory_.write(1, value_);
    {
      const penstock::communicator_use use(with);
      use.broadcast(memory_.where() + 1, 1, who, penstock::stream_handle{});
    }
    const double value = memory_.read(1);
    if (with.is_lost(number)) return;
    step_ = static_cast<std::uint64_t>(most);
    value_ = value;
    shared_ = number;
  }

  void take_step() {
    penstock::Communicator& with = *group_.communicator();
    std::uint64_t number = 0;
    // Depends on the step, the rank and all earlier steps.
    memory_.write(0, value_ * 0.25 + static_cast<double>(step_ * (group_.rank() + 1) % 97));
    {
      const penstock::communicator_use use(with);
      number = use.number();
      if (number != shared_) return;
      const bool holds = is_me(w_.odd, "holds") || is_me(w_.odd, "returns");
      if (holds && !std::exchange(held_, true)) return hold(use);
      use.all_reduce(memory_.where(), memory_.where(), 1, penstock::reduction::sum,
                     penstock::stream_handle{});
    }
    const double sum = memory_.read(0);
    if (with.is_lost(number)) return;
    value_ = sum / group_.world_size();
    ++step_;
  }

  /// Waits until the rank that keeps its use open has opened it; otherwise that rank would see the loss before its use.
  void die() const {
    const std::string holder = w_.odd.substr(0, w_.odd.find(':'));
    const bool awaited = w_.odd.starts_with(holder + ":holds:") || w_.odd.starts_with(holder + ":returns:");
    while (awaited && !std::filesystem::exists(w_.log + "/holds-" + holder)) std::this_thread::yield();
    static_cast<void>(std::raise(SIGKILL));
  }
  /// A use that stays open after the loss of its communicator.
  void hold(const penstock::communicator_use& use) {
    penstock::Communicator& with = *group_.communicator();
    say("holds");
    while (!with.is_lost(use.number())) std::this_thread::yield();
    say("lost");
    while (!std::filesystem::exists(w_.log + "/go")) {
      group_.check();
      std::this_thread::yield();
    }
  }
  void say(const std::string& what) const {
    std::ofstream(fmt::format("{}/{}-{}", w_.log, what, group_.rank())) << what;
  }
  /// Writes a line to the rank's file for each communicator number that the rank has seen.
  void note(std::uint64_t number) {
    if (!seen_.insert(number).second || w_.log.empty()) return;
    std::ofstream(fmt::format("{}/numbers-{}", w_.log, group_.rank()), std::ios::app) << number << '\n';
  }

  const wanted& w_;
  penstock::Group& group_;
  numbers memory_;  // own value; its copy; values of all ranks
  std::uint64_t step_ = 0;
  double value_ = 1;
  std::uint64_t shared_ = 0;  // the communicator over which all ranks last shared their state
  std::uint64_t losses_ = 0;
  bool held_ = false;
  std::set<std::uint64_t> seen_;
};

int run(const wanted& w) {
  const bool on_gpu = std::getenv("PENSTOCK_TEST_GPUS") != nullptr;
  if (on_gpu && std::getenv("COMMUNICATOR_PROGRAM_SELECTS") != nullptr)
    select_gpu(static_cast<std::uint32_t>(std::stoul(std::getenv("LOCAL_RANK"))));
  penstock::group_options options;
  options.name = "test";
  if (!w.none) options.settings.communicator = penstock::communicator_kind::nccl;
  options.settings.on_lost_rank = w.waits ? penstock::lost_rank_rule::wait : penstock::lost_rank_rule::fail;
  options.settings.join_timeout = w.patience;
  options.settings.lost_after = std::min<std::chrono::nanoseconds>(w.patience, 10s);
  options.settings.rejoin_timeout = 60s;
  options.settings.abort_timeout = w.abort_timeout;
  penstock::Group group(std::move(options));
  if (on_gpu) select_gpu(group.local_rank());  // selects the GPU for this program's memory
  training one(w, group, on_gpu);
  one.run();
  fmt::print("{}\n", one.text());
  std::fflush(stdout);
  group.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return penstock::testing::rank_main([&] { return run(parse(count, arguments)); });
}
