// What the running job is doing, for the flight recorder: "thumbnail (job 17)", "sample 37 (job 5)". Times the samples that a data
// loader's job names. Used by job_runner, on its thread.
#pragma once

#include "actors/child/sample_meter.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/arena/job_slot.hpp"

#include <penstock/job.hpp>

#include <string>
#include <string_view>

namespace penstock::job_worker {

class work_notes {
 public:
  explicit work_notes(arena::flight_writer& flight) : flight_(flight) {}

  /// Call before a job is started. `at`: where its row is.
  void begins(const arena::flight_state& at, const arena::job_reading& job, std::string_view function, steady_time now);
  /// Records what the job is doing now. Ends the current sample, if any.
  void describe(std::string_view work, steady_time now);
  /// Records that the job is loading this sample, and times it. Ends the current sample, if any.
  void sample(std::uint64_t index, std::string_view name, steady_time now);
  /// The job's slow samples so far. Empties the list.
  [[nodiscard]] JobCall::slow_load slow_samples(steady_time now);

 private:
  void end_sample(steady_time now);
  [[nodiscard]] std::string_view with_job(std::string_view work);

  arena::flight_writer& flight_;
  arena::flight_state at_;
  std::uint64_t job_ = 0;
  nanoseconds limit_{0};
  steady_time since_{};
  child::sample_meter meter_;
  struct {
    bool loads = false;
    std::uint64_t index = 0;
    std::string name;
  } sample_;
  bool has_loaded_ = false;  // a worker's first sample also opens files and imports modules: it is not timed
  std::string name_;         // reused, to avoid an allocation per job
};

}  // namespace penstock::job_worker
