#include "runtime/base/units.hpp"
#include "tools/penstock/doctor/row_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::doctor {
namespace {

// Descriptors of a session: its own (epoll, timers, memfds, control socket and clients, files of a sink), and for each worker two pidfds, a
// link and an output pipe.
constexpr std::uint64_t files_of_session = 128;
constexpr std::uint64_t files_per_worker = 4;
// Threads count as processes: the threads of the session and the owner, and for each worker four threads and its thread pools.
constexpr std::uint64_t threads_of_session = 16;
constexpr std::uint64_t threads_per_worker = 4;

finding ability(const std::string& trouble) {
  if (trouble.empty()) return {status::ok, "works"};
  return {status::fail, trouble};
}

finding none_of(const std::vector<std::string>& leftovers) {
  if (leftovers.empty()) return {status::ok, "none"};
  return {status::warn, fmt::format("{}", fmt::join(leftovers, ", "))};
}

}  // namespace

finding check_arena_memory(const facts& f) {
  if (f.machine.memory.empty()) return skipped("the available memory is unknown");
  const auto& tightest = *std::ranges::min_element(f.machine.memory, {}, &arena::memory_limit::available);
  if (!f.job.memory_need) {
    const std::string observed =
        fmt::format("{} leaves {}", tightest.who, bytes_for_people(tightest.available));
    if (!f.job.has_config) return {status::ok, observed, "what a job needs; pass its config file to compare"};
    return skipped("the size of a batch is unknown (see data.dataset)");
  }
  const arena::memory_need& need = *f.job.memory_need;
  if (auto ok = arena::check_memory(need, f.machine.memory); !ok)
    return {status::fail, ok.error().message, "", need.remedy};
  return {status::ok,
          fmt::format("the arena needs {} ({}); {} leaves {}", bytes_for_people(need.reserved_bytes),
                      need.explanation, tightest.who, bytes_for_people(tightest.available))};
}

finding check_open_files(const facts& f) {
  const auto need_of = [](std::uint64_t workers) { return files_of_session + files_per_worker * workers; };
  const std::string expected =
      fmt::format("at least {} for {}, {} to scale to {}", need_of(f.job.workers),
                  counted(f.job.workers, "worker"), need_of(f.job.workers_max), f.job.workers_max);
  if (!f.machine.open_files.soft) return {status::ok, "no limit", expected};
  const std::uint64_t limit = *f.machine.open_files.soft;
  const std::string observed = fmt::format("{} (ulimit -n)", limit);
  if (limit < need_of(f.job.workers)) return {status::fail, observed, expected};
  return {limit < need_of(f.job.workers_max) ? status::warn : status::ok, observed, expected};
}

finding check_pids(const facts& f) {
  const std::uint64_t need =
      threads_of_session + f.job.workers * (threads_per_worker + f.job.threads_per_worker - 1);
  const std::string expected =
      fmt::format("room for {} threads ({})", need, counted(f.job.workers, "worker"));
  const auto& limits = f.machine.pids;
  if (limits.empty()) return {status::ok, "no limit", expected};
  const auto& tightest = *std::ranges::min_element(limits, {}, &pid_limit::left);
  return {tightest.left < need ? status::fail : status::ok,
          fmt::format("{} leaves {}", tightest.who, tightest.left), expected};
}

finding check_cpus(const facts& f) {
  const std::uint32_t cores = f.machine.usable_cores;
  const std::uint64_t threads = std::uint64_t{f.job.workers} * f.job.threads_per_worker;
  const std::string observed =
      fmt::format("{} for {}{}", counted(cores, "core"), counted(f.job.workers, "worker"),
                  f.job.threads_from.empty() ? "" : ", " + f.job.threads_from + " in each");
  if (f.job.workers > cores) return {status::warn, observed};
  if (threads > cores) {
    return {status::warn, observed, "",
            "set " + f.job.threads_from.substr(0, f.job.threads_from.find('=')) + " = \"1\" in [loader.env]"};
  }
  return {status::ok, observed};
}

finding check_pidfd(const facts& f) {
  return ability(f.machine.pidfd);
}
finding check_parent_death(const facts& f) {
  return ability(f.machine.parent_death);
}
finding check_memfd_seals(const facts& f) {
  return ability(f.machine.memfd_seals);
}

finding check_orphans(const facts& f) {
  if (f.machine.orphans.empty()) return {status::ok, "none"};
  std::string list;
  std::string pids;
  for (const auto& o : f.machine.orphans) {
    list += fmt::format("{}{} (pid {})", list.empty() ? "" : ", ", o.name, o.pid);
    pids += fmt::format(" {}", o.pid);
  }
  return {status::warn, list + " without a session", "", "kill -9" + pids};
}

finding check_dead_sockets(const facts& f) {
  return none_of(f.machine.dead_sockets);
}

finding check_left_folders(const facts& f) {
  return none_of(f.machine.left_folders);
}

finding check_config(const facts& f) {
  if (!f.job.has_config) return skipped("no FILE was given");
  if (f.config_warnings.empty()) return {status::ok, "no mistakes"};
  return {status::warn, fmt::format("{}", fmt::join(f.config_warnings, "; "))};
}

finding check_worker_program(const facts& f) {
  if (f.worker.broken) return {status::fail, f.worker.broken->message};
  return {status::ok, f.worker.program + " starts"};
}

finding check_worker_protocol(const facts& f) {
  if (f.worker.broken) return skipped("the worker program does not start (see worker.program)");
  if (!f.worker.spoke) return {status::fail, f.worker.protocol_trouble};
  return {status::ok, "it sends hello with this version of the protocol"};
}

finding check_worker_cuda_free(const facts& f) {
  if (!f.worker.spoke) return skipped("no worker started (see worker.program and worker.protocol)");
  if (f.worker.cuda_traces.empty()) return {status::ok, "no CUDA library or device in the worker"};
  return {status::fail, fmt::format("the worker uses {}", fmt::join(f.worker.cuda_traces, ", "))};
}

finding check_dataset(const facts& f) {
  if (!f.job.has_config) return skipped("no FILE was given");
  const auto& trouble = f.data.trouble ? f.data.trouble : f.worker.dataset_trouble;
  if (trouble) return {status::fail, trouble->message};
  if (f.data.type.empty()) return skipped("no worker described the dataset (see worker.protocol)");
  if (!f.data.notices.empty()) return {status::warn, f.data.notices.front()};
  return {status::ok, fmt::format("{}: {}", f.data.type, counted(f.data.samples, "sample"))};
}

finding check_sample(const facts& f) {
  if (!f.job.has_config) return skipped("no FILE was given");
  const worker_facts& w = f.worker;
  if (!w.load_trouble.empty()) return {status::fail, w.load_trouble};
  if (!w.loaded) return skipped("no worker opened the dataset (see data.dataset and worker.protocol)");
  if (w.samples_good == 0)
    return {status::fail, fmt::format("none of {} could be loaded; {}", counted(w.samples_tried, "sample"),
                                      w.first_failure)};
  const std::string observed =
      fmt::format("{} of {} loaded", w.samples_good, counted(w.samples_tried, "sample"));
  if (w.samples_good < w.samples_tried) return {status::warn, observed + "; " + w.first_failure};
  return {status::ok, observed};
}

finding check_isolation(const facts& f) {
  if (!f.isolation) return skipped("only with --isolate");
  std::string passed;
  for (const auto& s : *f.isolation) {
    if (!s.tried) continue;
    if (!s.passed)
      return {status::fail, fmt::format("the first step to fail: {}: {}{}{}", s.name, s.told,
                                        passed.empty() ? "" : "; passed: ", passed)};
    passed += (passed.empty() ? "" : ", ") + s.name;
  }
  return {status::ok, "passed: " + passed};
}

}  // namespace penstock::doctor
