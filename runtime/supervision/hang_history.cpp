#include "runtime/supervision/hang_history.hpp"

#include "runtime/base/same_work.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"

#include <algorithm>

namespace penstock::supervision {
namespace {

std::string work_in(const death_report& d) {
  if (d.job) return d.work.value_or("");
  if (d.path) return *d.path;
  return d.sample ? default_sample_name(*d.sample) : std::string();
}

}  // namespace

bool is_hang(const death_report& d) {
  const bool knows_work = d.job || d.sample || d.path;
  const bool restarted = d.cause == death_cause::stopped && !d.ignored_stop_seconds && d.worked_seconds.value_or(0) >= hangs_from_seconds;
  return knows_work && (d.cause == death_cause::hang || restarted);
}

void note_hang(std::vector<hung_work>& known, death_report& death, work_kind kind) {
  const std::string name = printable(work_in(death));
  if (name.empty() && !death.job) return;
  auto at = std::ranges::find_if(known, [&](const hung_work& h) { return is_same_work(h, death.job, name, kind); });
  if (at != known.end()) death.hung_before = static_cast<std::uint32_t>(at->hangs.size());
  if (!is_hang(death)) return;
  if (at == known.end()) {
    if (known.size() >= hung_work_max) known.erase(known.begin());
    at = known.insert(known.end(), {name, death.job, {}});
  }
  at->name = name;
  at->job = death.job;
  if (at->hangs.size() >= hangs_kept) at->hangs.erase(at->hangs.begin());
  at->hangs.push_back({death.worker, death.worked_seconds.value_or(0), death.time, death.cause == death_cause::hang});
}

const hung_work* earlier_hangs(const session_status& status, const worker_status& worker) {
  const auto at = std::ranges::find_if(status.hung, [&](const hung_work& h) { return works_on(worker, h, kind_of_work(status.jobs)); });
  return at == status.hung.end() ? nullptr : &*at;
}

}  // namespace penstock::supervision
