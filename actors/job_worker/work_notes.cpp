#include "actors/job_worker/work_notes.hpp"

#include <array>
#include <charconv>
#include <utility>

namespace penstock::job_worker {
namespace {

constexpr std::size_t work_name_max = 450;  // the flight recorder keeps 500 bytes

}  // namespace

void work_notes::begins(const arena::flight_state& at, const arena::job_reading& job, std::string_view function, steady_time now) {
  at_ = at;
  job_ = job.job;
  limit_ = job.limit;
  since_ = now;
  sample_.loads = false;
  flight_.publish(at_, with_job(function), limit_, since_);
}

void work_notes::describe(std::string_view work, steady_time now) {
  end_sample(now);
  flight_.publish(at_, with_job(work), limit_, since_, now);
}

void work_notes::sample(std::uint64_t index, std::string_view name, steady_time now) {
  end_sample(now);
  flight_.publish(at_, with_job(name), limit_, since_, now);
  sample_.loads = true;
  sample_.index = index;
  sample_.name = name;
  meter_.begins(now);
}

JobCall::slow_load work_notes::slow_samples(steady_time now) {
  end_sample(now);
  const sample_times::of_batch times = meter_.take();
  JobCall::slow_load all{now - since_, times.slow, {}};
  if (times.slow.count() == 0) return all;
  for (const timed_sample& s : times.slowest) {
    if (is_slow_sample(s.took, times.usual)) all.slowest.push_back({s.index, s.name, s.took});
  }
  return all;
}

void work_notes::end_sample(steady_time now) {
  if (!std::exchange(sample_.loads, false)) return;
  if (std::exchange(has_loaded_, true)) meter_.ended(sample_.index, sample_.name, now);
}

std::string_view work_notes::with_job(std::string_view work) {
  std::array<char, 20> digits{};
  const char* const end = std::to_chars(digits.begin(), digits.end(), job_).ptr;
  name_ = work.substr(0, work_name_max);
  name_ += " (job ";
  name_.append(static_cast<const char*>(digits.data()), end);
  name_ += ')';
  return name_;
}

}  // namespace penstock::job_worker
