// Benchmarks of a pool of jobs, one JSON object per line; tools/bench/jobs.py compares it with other pools.
// The program is also the pool's worker program (--serve).
//
//   penstock-bench-jobs empty|round-trip|megabyte|hand-over|ready|replace|pending|flat [--workers N] [--jobs N]
//     [--seconds S]
//   penstock-bench-jobs device|full --program FILE [--device NAME] [--placement embedded|process] [the same]
#include "runtime/base/mapping.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/worker_slots.hpp"
#include "runtime/device/yardstick.hpp"
#include "tools/bench/hand_over.hpp"

#include <penstock/job.hpp>
#include <penstock/pool.hpp>

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

using clock = std::chrono::steady_clock;

struct settings {
  std::uint32_t workers = 2;
  std::uint64_t jobs = 0;  // 0: the benchmark's default
  double seconds = 60;
  std::string program;  // for device programs: a shared library
  std::string device = "auto";
  std::string placement = "process";
};

double seconds_since(clock::time_point begun) {
  return std::chrono::duration<double>(clock::now() - begun).count();
}

config pool_config(const settings& s) {
  config c;
  c.name = "bench-jobs";
  c.loader.command = {"/proc/self/exe", "--serve"};
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) > 0) c.loader.command[0] = self;
  c.loader.workers = s.workers;
  c.loader.restart.intensity.max = 1000;
  c.log.level = log_level::off;
  return c;
}

pool_options quietly() {
  pool_options options;
  options.control_socket = false;
  return options;
}

bool all_ready(const Pool& pool, std::uint32_t workers) {
  const session_status status = pool.status();
  return status.workers.size() == workers &&
         std::ranges::all_of(status.workers, [](const worker_status& w) { return w.state == child_state::ready; });
}

void wait_until_ready(const Pool& pool, std::uint32_t workers) {
  while (!all_ready(pool, workers)) std::this_thread::sleep_for(100us);
}

template <class Number>
Number percentile(std::vector<Number> all, double share) {
  std::ranges::sort(all);
  return all[std::min(all.size() - 1, static_cast<std::size_t>(share * static_cast<double>(all.size())))];
}

/// Jobs that do nothing, submitted by one thread, which then waits for them.
void empty(const settings& s) {
  Pool pool(pool_config(s), quietly());
  wait_until_ready(pool, s.workers);
  const std::uint64_t jobs = s.jobs > 0 ? s.jobs : 200'000;
  for (int i = 0; i < 1000; ++i) pool.submit("nothing", {}).get();
  const auto begun = clock::now();
  std::vector<Job> all;
  all.reserve(jobs);
  for (std::uint64_t i = 0; i < jobs; ++i) all.push_back(pool.submit("nothing", {}));
  for (Job& job : all) job.get();
  const double seconds = seconds_since(begun);
  fmt::print("{{\"figure\":\"empty\",\"jobs\":{},\"seconds\":{:.4f},\"jobs_per_second\":{:.0f}}}\n", jobs,
             seconds, static_cast<double>(jobs) / seconds);
}

/// One job at a time in an otherwise idle pool.
void round_trip(const settings& s) {
  Pool pool(pool_config(s), quietly());
  wait_until_ready(pool, s.workers);
  const std::uint64_t jobs = s.jobs > 0 ? s.jobs : 20'000;
  const std::string argument(64, 'x');
  std::vector<double> times;
  for (std::uint64_t i = 0; i < jobs; ++i) {
    const auto begun = clock::now();
    pool.submit("echo", argument).get();
    times.push_back(seconds_since(begun) * 1e6);
  }
  fmt::print(
      "{{\"figure\":\"round-trip\",\"jobs\":{},\"p50_us\":{:.1f},\"p90_us\":{:.1f},\"p99_us\":{:.1f}}}\n",
      jobs, percentile(times, 0.5), percentile(times, 0.9), percentile(times, 0.99));
}

/// Jobs per second with a 1 MB argument and a 1 MB result, compared with the same number of threads that only do the two
/// copies (bench::bare_copies).
void megabyte(const settings& s) {
  constexpr std::size_t bytes = bench::copied_bytes;
  const std::uint64_t jobs = s.jobs > 0 ? s.jobs : 4000;
  const bench::copied_arguments arguments = bench::make_arguments();

  config c = pool_config(s);
  c.loader.slot_bytes = byte_size{4U << 20U};
  const std::uint32_t slots_each = slots_of_a_pool_worker(c.loader);

  bench::bare_copies bare_copies(s.workers, slots_each);
  const auto bare = [&] { return bare_copies.jobs_per_second(arguments, jobs); };

  Pool pool(c, quietly());
  wait_until_ready(pool, s.workers);
  const auto pooled = [&](std::uint64_t count) {
    const auto begun = clock::now();
    auto outcomes = pool.map(
        "echo",
        [&, given = std::uint64_t{0}]() mutable -> std::optional<Argument> {
          if (given == count) return std::nullopt;
          const auto& argument = arguments[given++ % arguments.size()];
          return Argument::borrowed(*argument, argument);
        },
        {}, 16);
    while (auto one = outcomes.next()) {
      if (one->job.get().bytes().size() != bytes) std::abort();
    }
    return static_cast<double>(count) / seconds_since(begun);
  };
  pooled(200);
  bare();
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const double copies = bare();
    const double with_pool = pooled(jobs);
    ratios.push_back(with_pool / copies);
    rates.push_back(with_pool);
  }
  fmt::print(
      "{{\"figure\":\"megabyte\",\"jobs\":{},\"jobs_per_second\":{:.0f},\"of_bare_copies\":{:.3f},\"lowest\":"
      "{:.3f}}}\n",
      jobs, percentile(rates, 0.5), percentile(ratios, 0.5), percentile(ratios, 0));
}

/// The rate of the two copies with nothing but a hand-over between two processes: no pool can be faster.
void hand_over(const settings& s) {
  const std::uint64_t jobs = s.jobs > 0 ? s.jobs : 4000;
  const std::uint32_t slots_each = slots_of_a_pool_worker(pool_config(s).loader);
  const bench::copied_arguments arguments = bench::make_arguments();
  bench::bare_copies bare(s.workers, slots_each);
  bare.jobs_per_second(arguments, jobs);
  for (const bench::placement where : bench::placements) {
    for (const bool streaming : {false, true}) {
      const double line = bench::nanoseconds_between_cores();
      const double copies = bare.jobs_per_second(arguments, jobs);
      const double rate =
          bench::handed_over_per_second(arguments, {s.workers, slots_each, jobs, where, streaming});
      fmt::print(
          "{{\"figure\":\"hand-over\",\"placement\":\"{}\",\"stores\":\"{}\",\"jobs_per_second\":{:.0f},\"of_"
          "bare_"
          "copies\":{:.3f},\"cache_line_ns\":{:.0f}}}\n",
          bench::name_of(where), streaming ? "streaming" : "plain", rate, rate / copies, line);
    }
  }
}

/// Time until all workers are ready and the first result has arrived.
void ready(const settings& s) {
  const std::uint64_t rounds = s.jobs > 0 ? s.jobs : 50;
  std::vector<double> times;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const auto begun = clock::now();
    Pool pool(pool_config(s), quietly());
    wait_until_ready(pool, s.workers);
    pool.submit("nothing", {}).get();
    times.push_back(seconds_since(begun) * 1e3);
  }
  fmt::print("{{\"figure\":\"ready\",\"rounds\":{},\"p50_ms\":{:.2f},\"max_ms\":{:.2f}}}\n", rounds,
             percentile(times, 0.5), percentile(times, 1));
}

/// Time from the SIGKILL of a worker until its replacement is ready.
void replace(const settings& s) {
  const std::uint64_t rounds = s.jobs > 0 ? s.jobs : 50;
  std::vector<double> times;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    Pool pool(pool_config(s), quietly());
    wait_until_ready(pool, s.workers);
    pool.submit("nothing", {}).get();
    const worker_status victim = pool.status().workers.at(0);
    const auto begun = clock::now();
    ::kill(*victim.pid, SIGKILL);
    while (true) {
      const worker_status now = pool.status().workers.at(0);
      if (now.incarnation > victim.incarnation && now.state == child_state::ready) break;
      std::this_thread::sleep_for(100us);
    }
    times.push_back(seconds_since(begun) * 1e3);
  }
  fmt::print("{{\"figure\":\"replace\",\"rounds\":{},\"p50_ms\":{:.2f},\"max_ms\":{:.2f}}}\n", rounds,
             percentile(times, 0.5), percentile(times, 1));
}

/// Kills a worker while a thousand jobs wait: counts lost jobs and jobs that ran twice.
void pending(const settings& s) {
  Pool pool(pool_config(s), quietly());
  wait_until_ready(pool, s.workers);
  const std::uint64_t jobs = s.jobs > 0 ? s.jobs : 1000;
  std::vector<Job> all;
  for (std::uint64_t i = 0; i < jobs; ++i) all.push_back(pool.submit("pid", "1"));
  std::this_thread::sleep_for(100ms);
  const std::int32_t victim = *pool.status().workers.at(0).pid;
  const std::int32_t sibling = *pool.status().workers.at(1).pid;
  ::kill(victim, SIGKILL);
  std::uint64_t lost = 0;
  std::uint64_t twice = 0;
  std::set<std::string> pids;
  for (Job& job : all) {
    try {
      pids.emplace(job.get().text());
      twice += job.attempts() > 1 ? 1 : 0;
    } catch (const job_error&) {
      ++lost;
    }
  }
  fmt::print(
      "{{\"figure\":\"pending\",\"jobs\":{},\"lost\":{},\"run_twice\":{},\"sibling_undisturbed\":{}}}\n",
      jobs, lost, twice, pids.size() == 3 && pids.contains(std::to_string(sibling)) ? "true" : "false");
}

std::uint64_t private_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

/// Submits as fast as the queue accepts for some time; memory must not grow.
void flat(const settings& s) {
  Pool pool(pool_config(s), quietly());
  wait_until_ready(pool, s.workers);
  const auto begun = clock::now();
  std::uint64_t jobs = 0;
  std::uint64_t after_warm_up = 0;
  while (seconds_since(begun) < s.seconds) {
    for (int i = 0; i < 1000; ++i, ++jobs) static_cast<void>(pool.submit("nothing", std::string(64, 'x')));
    if (after_warm_up == 0 && seconds_since(begun) > s.seconds / 10) after_warm_up = private_bytes();
  }
  const std::uint64_t now = private_bytes();
  fmt::print("{{\"figure\":\"flat\",\"seconds\":{:.0f},\"jobs\":{},\"grown_bytes\":{},\"bytes\":{}}}\n",
             s.seconds, jobs, static_cast<std::int64_t>(now) - static_cast<std::int64_t>(after_warm_up), now);
}

constexpr std::uint64_t large_result = 8'000'000;

config device_config(const settings& s) {
  config c = pool_config(s);
  c.loader.slot_bytes = byte_size{large_result + (64U << 10U)};
  c.jobs.programs = {{"program", s.program}};
  c.gpu.device = s.device;
  c.gpu.placement = s.placement == "embedded" ? placement_rule::embedded : placement_rule::process;
  c.gpu.share = true;
  return c;
}

job_options to_program() {
  job_options options;
  options.program = "program";
  return options;
}

/// Bytes per second of 8 MB results that are uploaded and given to a device program, compared with bare
/// copies of the same number of bytes from pinned memory in the same run.
void device_rate(const settings& s) {
  constexpr std::uint32_t slots = 16;
  const std::uint64_t stride = round_up(large_result, 4096);
  const mapping memory = map_anonymous(slots * stride);
  std::memset(memory.bytes().data(), 1, memory.bytes().size());
  device::slots_in_memory bare_slots{{memory.bytes()}, {}};
  for (std::uint32_t i = 0; i < slots; ++i)
    bare_slots.slots.push_back(memory.bytes().subspan(i * stride, large_result));
  const auto bare = [&] {
    const auto measured = device::measure_bare_copies(s.device, bare_slots, 4, 2s);
    if (!measured) throw error(measured.error());
    return *measured;
  };

  Pool pool(device_config(s), quietly());
  wait_until_ready(pool, s.workers);
  const auto through_pool = [&](double seconds) {
    std::uint64_t jobs = 0;
    const auto begun = clock::now();
    auto outcomes = pool.map_unordered(
        "stamp",
        [&]() -> std::optional<Argument> {
          if (seconds_since(begun) > seconds) return std::nullopt;
          return Argument(std::to_string(large_result));
        },
        to_program(), 3 * std::size_t{s.workers});
    while (auto one = outcomes.next()) {
      static_cast<void>(one->job.get());
      ++jobs;
    }
    return static_cast<double>(jobs * large_result) / seconds_since(begun);
  };
  through_pool(2);
  std::vector<double> ratios;
  double best_bare = 0;
  double ours = 0;
  std::string name;
  bool pinned = false;
  for (int round = 0; round < 3; ++round) {
    const device::bare_copies copies = bare();
    const double rate = through_pool(3);
    ratios.push_back(rate / copies.bytes_per_second);
    best_bare = std::max(best_bare, copies.bytes_per_second);
    ours = std::max(ours, rate);
    name = copies.device;
    pinned = copies.pinned;
  }
  fmt::print(
      "{{\"figure\":\"device\",\"device\":\"{}\",\"placement\":\"{}\",\"workers\":{},\"bytes\":{},\"bytes_"
      "per_second\":"
      "{:.0f},\"bare_bytes_per_second\":{:.0f},\"bare_pinned\":{},\"ratio\":{:.3f},\"lowest\":{:.3f}}}\n",
      name, s.placement, s.workers, large_result, ours, best_bare, pinned, percentile(ratios, 0.5),
      percentile(ratios, 0));
}

/// Runs a job with a ring of 256 buffers, waits for a line on stdin, and
/// runs another job. For a device whose memory is full during the first job.
void full(const settings& s) {
  config c = device_config(s);
  c.gpu.buffers = 256;
  Pool pool(c, quietly());
  for (int round = 0; round < 2; ++round) {
    Job job = pool.submit("stamp", std::to_string(large_result), to_program());
    while (!job.wait_for(1s)) {
    }
    const auto why = job.why();
    fmt::print("{{\"figure\":\"full\",\"job\":{},\"status\":\"{}\",\"text\":\"{}\"}}\n", job.number(),
               name_of(why ? why->status : job_status::ok), why ? why->text : "");
    std::fflush(stdout);
    if (round == 0) static_cast<void>(std::getchar());
  }
}

int serve() {
  return job_main({
      {"nothing", [](JobCall&) {}},
      {"echo",
       [](JobCall& call) {
         const auto from = call.argument();
         std::memcpy(call.result(from.size()).data(), from.data(), from.size());
       }},
      {"stamp",
       [](JobCall& call) {
         const auto room = call.result(std::stoull(std::string(call.text())));
         const std::uint64_t stamp = call.job();
         std::memcpy(room.data(), &stamp, sizeof stamp);
       }},
      {"pid",
       [](JobCall& call) {
         std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(std::string(call.text()))));
         call.give(std::to_string(::getpid()));
       }},
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--serve") return serve();
  const std::map<std::string_view, void (*)(const settings&)> figures{
      {"empty", empty},        {"round-trip", round_trip},
      {"megabyte", megabyte},  {"hand-over", hand_over},
      {"ready", ready},        {"replace", replace},
      {"pending", pending},    {"flat", flat},
      {"device", device_rate}, {"full", full}};
  const auto figure = argc > 1 ? figures.find(argv[1]) : figures.end();
  if (figure == figures.end()) {
    fmt::print(stderr, "usage: penstock-bench-jobs FIGURE [--workers N] [--jobs N] [--seconds S]; figures:");
    for (const auto& [name, run] : figures) fmt::print(stderr, " {}", name);
    fmt::print(stderr, "\n");
    return 2;
  }
  settings s;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--workers") s.workers = static_cast<std::uint32_t>(std::stoul(argv[i + 1]));
    if (option == "--jobs") s.jobs = std::stoull(argv[i + 1]);
    if (option == "--seconds") s.seconds = std::stod(argv[i + 1]);
    if (option == "--program") s.program = argv[i + 1];
    if (option == "--device") s.device = argv[i + 1];
    if (option == "--placement") s.placement = argv[i + 1];
  }
  try {
    figure->second(s);
  } catch (const error& failed) {
    fmt::print(stderr, "penstock-bench-jobs {}: {}\n", figure->first, failed.what());
    return 1;
  }
  return 0;
}
