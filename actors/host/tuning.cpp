#include "actors/host/tuning.hpp"

#include "actors/host/worker_rules.hpp"
#include "runtime/base/log.hpp"

#include <nlohmann/json.hpp>

#include <ctime>
#include <utility>

namespace penstock::host {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t steps_kept = 20;

/// CPU time of all threads of a process; 0 if the process is gone.
nanoseconds cpu_time_of(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return nanoseconds(0);
  return std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
}

supervision::tuner_facts facts_of(const supervision::progress_facts& run, double waited_seconds,
                                  const std::vector<worker_look>& workers) {
  const session_status& s = run.status;
  supervision::tuner_facts facts;
  facts.flows = s.outcome == run_outcome::running && s.state != session_state::paused && s.state != session_state::stopping && s.gpu_state == child_state::ready &&
                s.batches_delivered > 0;
  facts.waited_seconds = waited_seconds;
  facts.delivered = s.samples_delivered;
  facts.own_cpu = cpu_time_of(0);
  if (run.owner_is_elsewhere && s.gpu_pid) facts.own_cpu += cpu_time_of(*s.gpu_pid);  // the sink works there
  facts.workers = workers;
  return facts;
}

}  // namespace

tuning::tuning(const config& settings, work_kind work, std::uint32_t workers)
    : limits_{settings.loader.limits.min, settings.loader.limits.max, cpu_of(settings)},
      of_jobs_(work != work_kind::samples) {
  if (of_jobs_) {
    off_because_ = fmt::format("a {} keeps its number of workers", words_for(work).run);
  } else if (settings.loader.workers) {
    off_because_ = "[loader] workers is a number";
  } else {
    tuner_.emplace(limits_, workers);
  }
}

void tuning::look(const supervision::progress_facts& run, double waited_seconds, const std::vector<worker_look>& workers,
                  steady_time now, const std::function<result<void>(const supervision::tuner_step&)>& take) {
  const std::lock_guard hold(mutex_);
  if (!tuner_) return;
  const auto step = tuner_->look(now, facts_of(run, waited_seconds, workers));
  if (!step) return;
  if (auto taken = take(*step); !taken) {
    tuner_->refused(*step, taken.error().message);
    return log::info("session", "staying with {} workers: {}", step->from, taken.error().message);
  }
  steps_.push_back(*step);
  if (steps_.size() > steps_kept) steps_.pop_front();
}

void tuning::switch_off(std::string why) {
  const std::lock_guard hold(mutex_);
  tuner_.reset();
  if (!of_jobs_) off_because_ = std::move(why);
}

bool tuning::switch_on(std::uint32_t workers) {
  const std::lock_guard hold(mutex_);
  if (of_jobs_) return false;
  tuner_.emplace(limits_, workers);
  return true;
}

json tuning::as_json(steady_time begun) const {
  const std::lock_guard hold(mutex_);
  json steps = json::array();
  for (const supervision::tuner_step& step : steps_) {
    const std::chrono::duration<double> at = step.at - begun;
    steps.push_back({{"seconds", at.count()}, {"from", step.from}, {"to", step.to}, {"why", step.why}});
  }
  return {{"state", !tuner_ ? "off" : tuner_->searches() ? "searching" : "settled"},
          {"workers", tuner_ ? json(tuner_->workers()) : json()},
          {"why", tuner_ ? tuner_->sentence() : off_because_},
          {"steps", std::move(steps)}};
}

}  // namespace penstock::host
