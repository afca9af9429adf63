#include "actors/jobs/job_texts.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace penstock::jobs {

job_status status_of(schedule::job_end how) {
  switch (how) {
    case schedule::job_end::result: return job_status::ok;
    case schedule::job_end::exception: return job_status::exception;
    case schedule::job_end::too_large: return job_status::too_large;
    case schedule::job_end::poisoned: return job_status::poisoned;
    case schedule::job_end::timed_out: return job_status::timed_out;
    case schedule::job_end::cancelled: return job_status::cancelled;
    case schedule::job_end::worker_lost: return job_status::worker_lost;
  }
  return job_status::exception;
}

std::string text_of(const schedule::settle_job& end, const job_record& job) {
  switch (end.how) {
    case schedule::job_end::poisoned:
      if (job.rules().inputs > 1)
        return fmt::format("{}; each of its {} inputs is now run as a job of its own",
                           deaths_over_work(job.work(), end.causes, end.causes.size()), job.rules().inputs);
      return fmt::format("{}{} not tried again", deaths_over_work(job.work(), end.causes, end.causes.size()),
                         std::ranges::any_of(end.causes, has_sender) ? "; it is" : " and is");
    case schedule::job_end::timed_out:
      return fmt::format("{} took longer than its timeout of {}", job.work(),
                         duration_for_people(job.rules().limit));
    case schedule::job_end::cancelled:
      return end.attempts > 0 ? "it was cancelled while it ran" : "it was cancelled before it started";
    case schedule::job_end::worker_lost:
      return fmt::format("its worker died while it ran, and {} is not idempotent", job.work());
    default: return {};
  }
}

std::string text_of_failure(std::uint64_t job, const std::string& work, const job_failure& why, work_kind kind) {
  const std::string how = name_of(why.status);
  if (kind != work_kind::batches) return fmt::format("job {} ({}): {}{}{}", job, work, how, why.text.empty() ? "" : ": ", why.text);
  const std::string text = why.text.empty() ? how : why.text;
  return text.starts_with(work) ? text : fmt::format("{}: {}", work, text);
}

std::string names_text(const std::map<std::string, std::uint32_t, std::less<>>& functions) {
  return functions.empty() ? "none" : fmt::format("{}", fmt::join(std::views::keys(functions), ", "));
}

}  // namespace penstock::jobs
