#include "actors/supervisor/owner_rules.hpp"

#include "actors/supervisor/death_record.hpp"
#include "runtime/process/process_facts.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace penstock::supervisor {
namespace {

using namespace std::chrono_literals;

constexpr auto lost_link_deadline = 1s;  // an exiting process closes its link first; then the driver cleans up

}  // namespace

supervision::owner_settings rules_of(const config& settings, bool pool) {
  supervision::owner_settings rules;
  rules.restart.intensity_max = settings.gpu.restart.intensity.max;
  rules.restart.intensity_within = settings.gpu.restart.intensity.within;
  rules.seed = settings.sampler.seed;
  rules.clocks = {owner_start_deadline, settings.loader.hang.heartbeat_timeout,
                  settings.gpu.hang.batch_timeout};
  rules.ending.after_closed_link = lost_link_deadline;
  if (!pool && settings.gpu.placement == placement_rule::embedded) {
    // Threads of this process cannot be killed. An owner that does not end in time reports that itself, and
    // its CUDA context stays.
    rules.ending.after_kill += keeper_waits_of_an_abort * settings.group.abort_timeout;
    rules.cures_poison = false;
  }
  rules.on_poison = pool ? poison_rule::skip : settings.gpu.on_poison_batch;
  return rules;
}

std::optional<std::uint32_t> in_hand(const arena::flight_reading& flight) {
  return flight.state.at == arena::phase::loading ? std::optional(flight.state.generation) : std::nullopt;
}

supervision::owner_sign sign_of(std::int32_t pid, const arena::flight_reading& flight) {
  const auto facts = process::look_at(pid);
  return {flight.heartbeats, flight.word, in_hand(flight), facts && facts->traced,
          process::wait_channel(pid)};
}

std::string owner_in_words(std::int32_t pid) {
  if (pid == ::getpid()) return "the GPU owner in this process";
  return fmt::format("the GPU owner (pid {})", pid);
}

std::string death_in_words(const supervision::owner_died& death) {
  const owner_death_report& d = death.report;
  return fmt::format("{} {}{}", owner_in_words(d.pid), end_text(d),
                     death.in_hand ? ", while its sink was working on " + *death.in_hand : "");
}

std::vector<gpu_process> processes_in(const protocol::gpu_processes_seen& news) {
  std::vector<gpu_process> processes;
  processes.reserve(news.processes.size());
  for (const protocol::wire_gpu_process& p : news.processes)
    processes.push_back({static_cast<std::int64_t>(p.pid), p.bytes});
  return processes;
}

}  // namespace penstock::supervisor
