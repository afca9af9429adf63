#include "actors/host/owner_reports.hpp"

#include "actors/host/run_events.hpp"
#include "runtime/base/log.hpp"

#include <fmt/format.h>

namespace penstock::host {

void owner_reports::opened(const device::identity& what) {
  if (what.uuid && !deps_.settings->gpu.share) {
    auto ours = device::exclusive_use::take(*what.uuid, deps_.settings->name);
    if (!ours) return gave_up(ours.error());
    const std::lock_guard hold(lock_guard_);
    lock_.emplace(std::move(*ours));
  }
  // Never do this if the GPU owner is another process: the query opens the GPU's device files.
  if (what.uuid && !deps_.elsewhere)
    watch_.emplace(*what.uuid, [this](const std::vector<gpu_process>& seen) { gpu_processes_seen(seen); });
  deps_.board->device_opened(what);
  deps_.tell(event_of(event_kind::device_opened, what.name));
  log::debug("gpu", "opened {}", what.name);
  device_ready(what);
}

void owner_reports::release_gpu() {
  const std::lock_guard hold(lock_guard_);
  lock_.reset();
}

void owner_reports::reopened(pid_t owner) {
  event again = event_of(event_kind::device_opened,
                         fmt::format("{}, reopened by a new GPU owner", deps_.board->status().gpu.name));
  again.pid = owner;
  deps_.tell(std::move(again));
}

void owner_reports::attached(const gpu_owner::attached_partition& what) {
  deps_.tell(event_of(what));
}

void owner_reports::progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
  deps_.board->uploaded(uploads, bytes, pinned);
}

void owner_reports::record_failure(const failure& why) {
  deps_.board->device_failed();
  deps_.tell(event_of(event_kind::device_failed, why.message));
}

void owner_reports::owner_changed(const supervisor::owner_facts& facts) {
  deps_.board->owner_changed(facts.state, facts.pid, facts.restarts);
}

void owner_reports::owner_died(const owner_death_report& death) {
  deps_.board->owner_died(death);
  deps_.tell(event_of(death));
}

void owner_reports::owner_recovered(std::uint32_t incarnation, double seconds_since_its_end) {
  deps_.board->owner_recovered(incarnation, seconds_since_its_end);
}

void owner_reports::owner_waited(nanoseconds in_all, std::optional<steady_time> waits_at) {
  deps_.board->waited(in_all, waits_at);
}

void owner_reports::gpu_processes_seen(std::vector<gpu_process> processes) {
  deps_.board->gpu_processes_seen(std::move(processes));
}

void owner_reports::owner_closed() {
  deps_.ending->owner_gone();
}

}  // namespace penstock::host
