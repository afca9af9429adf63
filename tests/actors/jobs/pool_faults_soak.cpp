// A hundred thousand jobs under faults: a fault injector kills and stops workers from outside, functions
// kill, crash, exit, leak and hang, and three jobs kill every worker that tries them. Every other job must
// return its own result, once; those three must be named; nothing may hang.
//
//   PENSTOCK_TEST_SEED=... PENSTOCK_SOAK_JOBS=100000
#include "tests/actors/jobs/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <tuple>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : otherwise;
}

/// Puts this process and its future children into a memory cgroup of 512 MiB, where the test may create one.
class memory_cgroup {
 public:
  memory_cgroup() {
    for (const auto& [root, limit, controller] :
         {std::tuple{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", ":memory:"},
          std::tuple{"/sys/fs/cgroup", "memory.max", "::"}}) {
      std::error_code no;
      const std::filesystem::path folder =
          std::filesystem::path(root) / fmt::format("penstock-faults-{}", ::getpid());
      if (!std::filesystem::create_directory(folder, no)) continue;
      const auto home = std::filesystem::path(root + here(controller)) / "cgroup.procs";
      if (say(folder / limit, std::to_string(512U << 20U)) && std::filesystem::exists(home, no) &&
          say(folder / "cgroup.procs", std::to_string(::getpid()))) {
        folder_ = folder;
        home_ = home;
        return;
      }
      std::filesystem::remove(folder, no);
    }
  }
  /// Requires that all other processes have ended.
  ~memory_cgroup() {
    if (!made()) return;
    say(home_, std::to_string(::getpid()));
    ::rmdir(folder_.c_str());
  }
  memory_cgroup(const memory_cgroup&) = delete;
  memory_cgroup& operator=(const memory_cgroup&) = delete;
  [[nodiscard]] bool made() const { return !folder_.empty(); }

 private:
  static bool say(const std::filesystem::path& file, const std::string& text) {
    std::ofstream to(file);
    return static_cast<bool>(to << text << std::flush);
  }
  /// The cgroup of this process below the controller's root.
  static std::string here(const std::string& controller) {
    std::ifstream all("/proc/self/cgroup");
    for (std::string line; std::getline(all, line);) {
      if (const auto at = line.find(controller); at != std::string::npos)
        return line.substr(at + controller.size());
    }
    return {};
  }

  std::filesystem::path folder_;
  std::filesystem::path home_;
};

/// The fault of a job's first attempt ("always_kill": of every
/// attempt), which is the first word of the job's argument.
std::string fault_of(std::uint64_t number, const std::set<std::uint64_t>& killers, bool oom,
                     std::mt19937_64& random) {
  if (killers.contains(number)) return "always_kill";
  switch (random() % 4000) {
    case 0: return "kill";
    case 1: return "segv";
    case 2: return "abort";
    case 3: return "exit";
    case 4: return "leak";
    case 5: return "hang";
    case 6: return oom ? "oom" : "none";
    default: return "none";
  }
}

std::string argument_of(std::uint64_t number, const std::string& fault) {
  std::string text = fmt::format("{} {} ", fault, number);
  text.resize(64, '.');
  return text;
}

/// Kills and stops random workers until told to stop.
class fault_injector {
 public:
  fault_injector(const Pool& pool, std::uint64_t seed)
      : pool_(pool), random_(seed), thread_([this] { run(); }) {}
  ~fault_injector() {
    over_ = true;
    thread_.join();
  }
  fault_injector(const fault_injector&) = delete;
  fault_injector& operator=(const fault_injector&) = delete;
  [[nodiscard]] int kills() const { return kills_; }
  [[nodiscard]] int stops() const { return stops_; }

 private:
  void run() {
    while (!over_) {
      // Occasionally long enough for a hanging job to reach its time limit.
      const std::uint64_t pause = random_() % 25 == 0 ? 2500 : 20 + random_() % 60;
      std::this_thread::sleep_for(std::chrono::milliseconds(pause));
      const session_status status = pool_.status();
      if (status.workers.empty()) continue;
      const worker_status& victim = status.workers[random_() % status.workers.size()];
      if (!victim.pid || victim.state != child_state::ready) continue;
      const bool stops = random_() % 10 == 0;
      // Signals only the pool's own children: a pid cannot be reused before the process is reaped.
      ::kill(*victim.pid, stops ? SIGSTOP : SIGKILL);
      ++(stops ? stops_ : kills_);
    }
  }

  const Pool& pool_;
  std::mt19937_64 random_;
  std::atomic<bool> over_ = false;
  std::atomic<int> kills_ = 0;
  std::atomic<int> stops_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_CASE(
    "under a fault injector three of a hundred thousand jobs are named, all other results are right, and nothing hangs") {
  const std::uint64_t seed = from_environment("PENSTOCK_TEST_SEED", std::random_device()());
  const std::uint64_t count = from_environment("PENSTOCK_SOAK_JOBS", 100'000);
  fmt::print("PENSTOCK_TEST_SEED={}, {} jobs\n", seed, count);
  std::fflush(stdout);
  std::mt19937_64 random(seed);
  std::set<std::uint64_t> killers;
  while (killers.size() < 3) killers.insert(random() % count);

  const memory_cgroup small;
  if (!small.made()) fmt::print("no memory cgroup can be made here: nothing is killed by the kernel\n");

  config c = odd_jobs(2);
  c.loader.hang.heartbeat_timeout = 300ms;
  c.loader.limits.memory = byte_size{256U << 20U};
  c.loader.restart.intensity.max = 1000;
  c.loader.restart.backoff.base = 1ms;
  c.loader.restart.backoff.max = 5ms;
  c.quarantine.max_attempts =
      100;  // the fault injector may hit one job several times; the killers are identified by their numbers
  Pool pool(c, quietly());

  std::map<std::uint64_t, std::string> faults;
  std::uint64_t given = 0;
  std::uint64_t right = 0;
  std::uint64_t timed_out = 0;
  std::set<std::uint64_t> named;
  std::vector<std::string> wrong;
  fault_injector injector(pool, seed + 1);
  auto outcomes = pool.map(
      "odd",
      [&]() -> std::optional<Argument> {
        if (given == count) return std::nullopt;
        const std::string fault = fault_of(given, killers, small.made(), random);
        if (fault != "none") faults[given] = fault;
        return argument_of(given++, fault);
      },
      {.timeout = 2s}, 1000);
  const auto begun = std::chrono::steady_clock::now();
  while (auto one = outcomes.next()) {
    const auto fault = faults.find(one->index);
    const std::string what = fault == faults.end() ? "none" : fault->second;
    const job_status status = one->job.why() ? one->job.why()->status : job_status::ok;
    if (status == job_status::ok) {
      const std::string expected = argument_of(one->index, what);
      if (one->job.get().text() == expected) {
        ++right;
      } else {
        wrong.push_back(fmt::format("job {} gave another result", one->index));
      }
    } else if (status == job_status::poisoned) {
      named.insert(one->index);
    } else if (status == job_status::timed_out && what == "hang") {
      ++timed_out;
    } else {
      wrong.push_back(
          fmt::format("job {} ({}): {}: {}", one->index, what, name_of(status), one->job.why()->text));
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::map<std::string, int> of_fault;
  for (const auto& [number, fault] : faults) ++of_fault[fault];
  for (const auto& [fault, jobs] : of_fault) fmt::print("{} x {}, ", jobs, fault);
  std::map<std::string, int> of_cause;
  for (const death_report& death : pool.report().deaths) ++of_cause[name_of(death.cause)];
  fmt::print("the last deaths by cause:");
  for (const auto& [cause, deaths] : of_cause) fmt::print(" {} x {}", deaths, cause);
  fmt::print("\n");
  fmt::print(
      "{} right, {} timed out, {} poisoned, {} wrong; {} kills and {} stops from outside, {} deaths in all; "
      "{:.1f} s\n",
      right, timed_out, named.size(), wrong.size(), injector.kills(), injector.stops(),
      pool.status().workers_ended_unexpectedly, seconds);
  for (const std::string& one : wrong) UNSCOPED_INFO(one);
  CHECK(wrong.empty());
  CHECK(named == killers);
  if (of_fault.contains("oom") && count <= 10'000) CHECK(of_cause["oom"] > 0);
  CHECK(right + timed_out + named.size() == count);
}
