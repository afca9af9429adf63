// A worker program whose samples stall as reads from a network do: one read of a sample waits for seconds, the next read of
// the same sample does not. [dataset.options]:
//   folder        where it notes which samples were read; empty it before each run
//   samples, wait_us                   how many samples, and how long each takes
//   count                              anything: as many samples as [dataset] path has lines
//   stall_every, stall, stall_reads    which samples stall (index % stall_every == stall_every - 1), for how many seconds,
//                                      and how many times (1)
//   slow_every, slow_factor            which samples always take longer, and how many times as long
//   kill, kill_after                   this sample crashes its worker each time, after that many seconds
//   kill_once_every                    these samples crash their worker in their first attempt
//   collate                            anything: a batch's bytes depend on all its samples
// Used by hedge_test.py, custom_hosts_test.py and tools/bench/stalls.py.
#include <penstock/worker.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using namespace penstock;

class stalling final : public Dataset {
 public:
  explicit stalling(const config& settings) : options_(settings.dataset.options), path_(settings.dataset.path) {}

  dataset_description describe() override {
    return {"stalling", options_.contains("count") ? lines() : number("samples", 800), {{"data", dtype::uint64, {16}, tensor_role::data}}, "1"};
  }

  void load(const sample_request& sample, const sample_slot& slot) override {
    if (is_of(sample.index, "stall_every") && reads_before(sample) < number("stall_reads", 1)) sleep(seconds("stall"));
    if (options_.contains("kill") && sample.index == number("kill", 0)) {
      sleep(seconds("kill_after"));
      crash();
    }
    if (sample.attempt == 1 && is_of(sample.index, "kill_once_every")) crash();
    const std::uint64_t factor = is_of(sample.index, "slow_every") ? number("slow_factor", 1) : 1;
    sleep(std::chrono::microseconds(number("wait_us", 0) * factor));
    for (std::uint64_t& word : slot.as<std::uint64_t>(0)) word = sample.random();
  }

  void collate(const batch_slot& batch, random_source& random) override {
    if (!options_.contains("collate")) return;
    for (std::uint64_t& word : batch.as<std::uint64_t>(0)) word ^= random() + batch.rows();
  }

 private:
  static void sleep(std::chrono::microseconds time) {
    if (time.count() > 0) std::this_thread::sleep_for(time);
  }
  static void crash() {
    std::signal(SIGSEGV, SIG_DFL);
    std::raise(SIGSEGV);
  }
  [[nodiscard]] std::uint64_t number(const std::string& key, std::uint64_t otherwise) const {
    const auto found = options_.find(key);
    return found == options_.end() ? otherwise : std::stoull(found->second);
  }
  [[nodiscard]] std::chrono::microseconds seconds(const std::string& key) const {
    const auto found = options_.find(key);
    return std::chrono::microseconds(found == options_.end() ? 0 : static_cast<std::int64_t>(std::stod(found->second) * 1e6));
  }
  [[nodiscard]] bool is_of(std::uint64_t index, const std::string& key) const {
    const std::uint64_t every = number(key, 0);
    return every > 0 && index % every == every - 1;
  }
  /// How often workers have read the sample in this epoch; stops counting at stall_reads.
  [[nodiscard]] std::uint64_t reads_before(const sample_request& sample) const {
    std::uint64_t before = 0;
    for (; before < number("stall_reads", 1); ++before) {
      const std::string path = options_.at("folder") + "/" + std::to_string(sample.epoch) + "-" + std::to_string(sample.index) +
                               "-" + std::to_string(before);
      const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC | O_WRONLY, 0644);
      if (file < 0) continue;
      ::close(file);
      break;
    }
    return before;
  }

  [[nodiscard]] std::uint64_t lines() const {
    std::ifstream file(path_);
    if (!file) throw std::runtime_error("there is no " + path_);
    return static_cast<std::uint64_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }

  string_map options_;
  std::string path_;
};

}  // namespace

int main() {
  return penstock::worker_main([](const penstock::config& settings) { return std::make_unique<stalling>(settings); });
}
