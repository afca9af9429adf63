// The upload benchmark. "Bare" measures how fast the same memory can be copied to the same device without the
// runtime; the session then adds workers, messages and a consumer that takes and releases every batch.
#include "runtime/arena/arena.hpp"
#include "runtime/base/file_text.hpp"
#include "runtime/device/yardstick.hpp"
#include "tools/penstock/bench/bench.hpp"

#include <penstock/session.hpp>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t more_samples_than_fit_in_the_time = 1ULL << 40U;
constexpr auto idle_time = 1s;

/// An arena like the session's own.
struct own_arena {
  std::vector<mapping> partitions;
  device::slots_in_memory memory;
};

own_arena make_arena(const upload_bench& what) {
  own_arena all;
  auto file = value_or_throw(arena::arena::create());
  const arena::geometry shape{what.slot_bytes, what.slots, what.workers};
  value_or_throw(file.size_and_seal(shape));
  for (std::uint32_t p = 0; p < what.workers; ++p) {
    value_or_throw(file.reserve(p));
    all.partitions.push_back(value_or_throw(arena::map_partition(file.fd(), shape, p)));
    all.memory.partitions.push_back(all.partitions.back().bytes());
  }
  for (std::uint32_t s = 0; s < what.slots; ++s) {
    for (const mapping& p : all.partitions)
      all.memory.slots.emplace_back(p.bytes().subspan(shape.slot_offset(s), what.slot_bytes));
  }
  return all;
}

/// CPU seconds of a task, from its stat file; 0 if it is gone.
double cpu_seconds(const std::filesystem::path& stat) {
  const std::string text = text_of_file(stat);
  const auto after_name = text.rfind(')');
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(after_name + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// CPU seconds of this process's threads by name; threads with the same name are added up.
std::map<std::string, double> cpu_of_threads() {
  std::map<std::string, double> all;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    all[name] += cpu_seconds(task.path() / "stat");
  }
  return all;
}

double cpu_of_workers(const Session& session) {
  double all = 0;
  for (const worker_status& w : session.status().workers) {
    if (w.pid) all += cpu_seconds(fmt::format("/proc/{}/stat", *w.pid));
  }
  return all;
}

config settings_of(const upload_bench& what) {
  config c;
  c.name = fmt::format("bench-{}", ::getpid());
  c.dataset.type = dataset_type::synthetic;
  c.dataset.samples = more_samples_than_fit_in_the_time;
  c.dataset.bytes_per_sample = byte_size{what.slot_bytes};
  c.dataset.fill = what.fill;
  c.sampler.batch_size = 1;
  c.sampler.shuffle = false;
  c.loader.workers = what.workers;
  c.loader.limits.max = std::max(what.workers, c.loader.limits.min);
  c.loader.slots_per_worker = what.slots;
  c.gpu.device = what.device;
  c.gpu.buffers = what.buffers;
  c.log.level = log_level::warn;
  return c;
}

/// Takes and releases batches until the time has passed.
std::uint64_t consume(Session& session, nanoseconds time) {
  std::uint64_t batches = 0;
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    auto batch = session.next();
    if (!batch) throw error({errc::stopped, "the stream ended before the measurement did", 0});
    batch->release_unused();
    ++batches;
  }
  return batches;
}

struct session_figures {
  std::uint64_t batches = 0;
  double seconds = 0;
  double first_batch_seconds = 0;
  std::map<std::string, double> cpu_threads;  // in cores
  double cpu_workers = 0;
  double cpu_owner_idle = 0;
  run_report report;
};

session_figures measure_session(const upload_bench& what) {
  session_figures f;
  session_options options;
  options.control_socket = false;
  const auto constructed = std::chrono::steady_clock::now();
  Session session(settings_of(what), options);
  session.next().value().release_unused();
  f.first_batch_seconds = seconds_since(constructed);
  consume(session, std::max<nanoseconds>(what.time / 5, 300ms));  // by now all workers are ready

  const auto threads_before = cpu_of_threads();
  const double workers_before = cpu_of_workers(session);
  const auto begin = std::chrono::steady_clock::now();
  f.batches = consume(session, what.time);
  f.seconds = seconds_since(begin);
  f.cpu_workers = (cpu_of_workers(session) - workers_before) / f.seconds;
  for (const auto& [name, cpu] : cpu_of_threads()) {
    const auto before = threads_before.find(name);
    const double used = cpu - (before == threads_before.end() ? 0 : before->second);
    if (used > 0) f.cpu_threads[name] = used / f.seconds;
  }

  // The consumer stops taking batches: all queues fill up and the session becomes idle.
  std::this_thread::sleep_for(200ms);
  const double owner_before = cpu_of_threads()["penstock-owner"];
  std::this_thread::sleep_for(idle_time);
  f.cpu_owner_idle =
      (cpu_of_threads()["penstock-owner"] - owner_before) / std::chrono::duration<double>(idle_time).count();
  f.report = session.report();
  session.stop(0ms);
  return f;
}

}  // namespace

nlohmann::ordered_json bench_upload(const upload_bench& what) {
  device::bare_copies bare;
  {
    const own_arena memory = make_arena(what);
    bare = value_or_throw(device::measure_bare_copies(what.device, memory.memory, what.buffers, what.time));
  }
  const session_figures f = measure_session(what);
  const double bytes_per_second = static_cast<double>(f.batches * what.slot_bytes) / f.seconds;
  nlohmann::ordered_json threads = nlohmann::ordered_json::object();
  for (const auto& [name, cores] : f.cpu_threads) threads[name] = cores;
  constexpr const char* fills[] = {"stamp", "memset", "memcpy", "random"};
  return {{"schema", "penstock.bench.upload/1"},
          {"device", {{"kind", f.report.device.kind}, {"name", bare.device}}},
          {"workers", what.workers},
          {"slot_bytes", what.slot_bytes},
          {"slots", what.slots},
          {"buffers", what.buffers},
          {"fill", fills[static_cast<std::size_t>(what.fill)]},
          {"bare",
           {{"bytes_per_second", bare.bytes_per_second},
            {"register_seconds", bare.register_seconds},
            {"pinned", bare.pinned}}},
          {"runtime",
           {{"bytes_per_second", bytes_per_second},
            {"batches_per_second", static_cast<double>(f.batches) / f.seconds},
            {"first_batch_seconds", f.first_batch_seconds},
            {"pinned", f.report.pinned}}},
          {"ratio", bytes_per_second / bare.bytes_per_second},
          {"cpu",
           {{"owner", f.cpu_threads.contains("penstock-owner") ? f.cpu_threads.at("penstock-owner") : 0.0},
            {"owner_idle", f.cpu_owner_idle},
            {"workers", f.cpu_workers},
            {"threads", threads}}}};
}

}  // namespace penstock::cli
