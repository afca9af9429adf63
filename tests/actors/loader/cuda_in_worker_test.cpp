// Loader code that uses CUDA in a worker: how and when the embedding program learns of it.
#include <penstock/session.hpp>

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <regex>
#include <set>

using namespace penstock;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t cuda_sample = 21;

struct outcome {
  run_report report;
  std::set<std::int32_t> pids;  // pids of all workers
  std::chrono::nanoseconds until_told{-1};
};

outcome run_with_cuda_in_a_worker(bool throws) {
  const fs::path time_file = fs::temp_directory_path() / ("penstock-cuda-time-" + std::to_string(::getpid()));
  config c;
  c.name = "cuda-in-a-worker";
  c.dataset.type = dataset_type::custom;
  c.dataset.options = {{"library", PENSTOCK_FAKE_CUDA},
                       {"time_file", time_file},
                       {"sample", std::to_string(cuda_sample)},
                       {"throws", throws ? "yes" : "no"}};
  c.loader.command = {PENSTOCK_CUDA_USING_WORKER};
  c.loader.workers = 3;
  c.sampler.batch_size = 4;
  c.gpu.device = "host";
  c.log.level = log_level::off;

  outcome seen;
  std::mutex mutex;
  std::chrono::nanoseconds told{0};
  session_options o;
  o.control_socket = false;
  o.on_event = [&](const event& e) {
    const std::lock_guard hold(mutex);
    // Use events: the worker may be gone by the time the status is read.
    if (e.kind == event_kind::worker_ready && e.pid) seen.pids.insert(*e.pid);
    if (e.kind == event_kind::sample_failed && told == 0ns)
      told = std::chrono::steady_clock::now().time_since_epoch();
  };
  {
    Session session(c, o);
    while (session.next()) {
    }
    seen.report = session.report();
  }
  std::int64_t done = 0;
  std::ifstream(time_file) >> done;
  fs::remove(time_file);
  const std::lock_guard hold(mutex);
  if (told != 0ns && done != 0) seen.until_told = told - std::chrono::nanoseconds(done);
  return seen;
}

void check(const outcome& seen) {
  REQUIRE_FALSE(seen.report.failures.empty());
  const failure_report& f = seen.report.failures.front();
  CHECK(f.sample == cuda_sample);
  INFO(f.error);
  std::smatch parts;
  REQUIRE(std::regex_search(f.error, parts, std::regex(R"(worker (\d+) \(pid (\d+)\))")));
  CHECK(std::stoul(parts[1]) < 3);
  CHECK(seen.pids.contains(std::stoi(parts[2])));
  CHECK(f.error.find("only the GPU owner uses the GPU") != std::string::npos);
  CHECK(seen.until_told >= 0ns);
  CHECK(seen.until_told < 1s);
  // The worker that used CUDA is replaced. The others are unaffected.
  for (const death_report& d : seen.report.deaths) {
    CHECK(d.pid == std::stoi(parts[2]));
    CHECK(d.code == 75);
    CHECK_FALSE(d.sample);
  }
  CHECK(seen.report.epochs.at(0).delivered == 63);
  CHECK(seen.report.epochs.at(0).failed == 1);
  CHECK(seen.report.epochs.at(0).quarantined == 0);
}

}  // namespace

TEST_CASE("a dataset that loads CUDA is reported within a second with worker, pid and rule") {
  check(run_with_cuda_in_a_worker(false));
}

TEST_CASE("an exception after loading CUDA names the rule first, then the library's message") {
  const outcome seen = run_with_cuda_in_a_worker(true);
  check(seen);
  const std::string& error = seen.report.failures.front().error;
  CHECK(error.find("CUDA error: initialization error") > error.find("only the GPU owner"));
  CHECK(error.find("CUDA error: initialization error") != std::string::npos);
}
