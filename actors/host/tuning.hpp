// Tunes the number of workers of a session whose [loader] workers is "auto": gathers what supervision/worker_tuner needs to know and
// keeps its steps for `status`. If an operator or the program sets a number, tuning is off until it is switched on again.
// Thread-safe.
#pragma once

#include "actors/host/worker_look.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/supervision/awaited.hpp"
#include "runtime/supervision/worker_tuner.hpp"

#include <penstock/config.hpp>

#include <nlohmann/json_fwd.hpp>

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace penstock::host {

class tuning {
 public:
  /// `workers`: the number at the start. In a pool tuning is off and stays off.
  tuning(const config& settings, work_kind work, std::uint32_t workers);

  /// Evaluates the run. If a step is due, calls `take`, which may refuse the step.
  void look(const supervision::progress_facts& run, double waited_seconds, const std::vector<worker_look>& workers, steady_time now,
            const std::function<result<void>(const supervision::tuner_step&)>& take);
  /// `why` says who chose the number of workers: "6 workers were requested".
  void switch_off(std::string why);
  /// Begins a new search. False: this is a pool of jobs.
  [[nodiscard]] bool switch_on(std::uint32_t workers);

  /// The field `tuning` of status.
  [[nodiscard]] nlohmann::ordered_json as_json(steady_time begun) const;

 private:
  const supervision::tuner_limits limits_;
  const bool of_jobs_;
  mutable std::mutex mutex_;  // guards the members below
  std::optional<supervision::worker_tuner> tuner_;  // empty: off
  std::string off_because_;
  std::deque<supervision::tuner_step> steps_;  // the latest steps
};

}  // namespace penstock::host
