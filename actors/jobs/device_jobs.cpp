#include "actors/jobs/device_jobs.hpp"

#include "runtime/base/check.hpp"

#include <fmt/core.h>

namespace penstock::jobs {

device_outcome device_jobs::as_failed(job_at_device job, job_status status, std::string text,
                                      std::vector<std::string> causes) const {
  return {std::move(job.record), job.attempts,
          job_failure{status, {}, std::move(text), {}, std::move(causes), job.attempts}};
}

std::optional<device_outcome> device_jobs::add(std::shared_ptr<job_record> record, slot_result result,
                                               std::uint32_t attempts) {
  job_at_device job{std::move(record), std::move(result), attempts};
  if (queue_.failure()) return as_failed(std::move(job), job_status::device, *queue_.failure());
  const std::uint64_t number = job.record->number();
  job.result.held->stay_in_slot();
  job.record->reached_device();
  queue_.add(number, job.record->rules().idempotent, job.record->rules().stays_there);
  jobs_.emplace(number, std::move(job));
  return std::nullopt;
}

std::vector<upload_order> device_jobs::orders(std::uint64_t first) {
  std::vector<upload_order> all;
  const std::uint64_t room = buffers_ ? buffers_->room() : 0;
  for (const schedule::device_order& o : queue_.take_orders(room, first)) {
    const job_at_device& job = jobs_.at(o.job);
    const job_rules& rules = job.record->rules();
    upload_order order;
    order.upload = o.upload;
    order.era = o.era;
    order.position = o.job;
    order.partition = job.result.lease.holder.worker;
    order.slot = job.result.lease.slot;
    order.samples = {o.job};
    order.job = job_upload{job.result.offset, job.result.bytes, rules.program, rules.stays_there,
                           job.record->function()};
    all.push_back(std::move(order));
  }
  return all;
}

/// The outcome; empty for a cancelled job. Frees the job's slot in either case.
std::optional<device_outcome> device_jobs::end(const schedule::device_departure& gone) {
  const auto found = jobs_.find(gone.job);
  PENSTOCK_CHECK(found != jobs_.end(), "job {}", gone.job);
  job_at_device job = std::move(found->second);
  jobs_.erase(found);
  if (!gone.wanted) {
    --unwanted_;
    return std::nullopt;
  }
  const std::string& function = job.record->function();
  switch (gone.how) {
    case schedule::device_end::poisoned:
      return as_failed(std::move(job), job_status::poisoned,
                       fmt::format("the result of {} killed {} GPU owners and is not tried again", function,
                                   gone.causes.size()),
                       gone.causes);
    case schedule::device_end::lost:
      return as_failed(
          std::move(job), job_status::worker_lost,
          fmt::format("the GPU owner died while it held the result of {}, which is not idempotent", function),
          gone.causes);
    case schedule::device_end::no_device:
      return as_failed(std::move(job), job_status::device, queue_.failure().value_or(""));
    case schedule::device_end::answered:
    case schedule::device_end::cancelled: break;
  }
  return as_failed(std::move(job), job_status::cancelled, "it was cancelled");
}

std::vector<device_outcome> device_jobs::end_all(const std::vector<schedule::device_departure>& gone) {
  std::vector<device_outcome> ended;
  for (const schedule::device_departure& one : gone) {
    if (auto outcome = end(one)) ended.push_back(std::move(*outcome));
  }
  return ended;
}

std::optional<device_outcome> device_jobs::answered(device_answer answer) {
  const auto gone = queue_.answered(answer.upload);
  const auto found = gone ? jobs_.find(gone->job) : jobs_.end();
  std::unique_ptr<device_result> there;
  if (answer.buffer && buffers_) {
    // Construct it even if the result is unwanted: its destructor returns the buffer.
    const bool known = found != jobs_.end();
    there = std::make_unique<device_result>(buffers_, known ? found->second.record->known_as() : 0, *answer.buffer,
                                            known ? found->second.result.bytes : 0);
  }
  if (!gone) return std::nullopt;
  if (!gone->wanted) return end(*gone);
  job_at_device job = std::move(found->second);
  jobs_.erase(found);
  using kind = device_answer::kind;
  if (answer.how != kind::ok) {
    return as_failed(std::move(job),
                     answer.how == kind::too_large ? job_status::too_large : job_status::device,
                     std::move(answer.text));
  }
  std::shared_ptr<kept_result> result =
      there ? std::make_shared<kept_result>(std::move(there))
            : std::make_shared<kept_result>(job.record->number(), std::move(answer.bytes), meter_);
  return device_outcome{std::move(job.record), job.attempts, std::move(result)};
}

std::vector<device_outcome> device_jobs::owner_lost(const device_lost& news) {
  std::optional<schedule::device_blame> blamed;
  if (news.blamed)
    blamed = schedule::device_blame{news.blamed->job, news.blamed->cause, news.blamed->poisons};
  return end_all(queue_.owner_lost(news.era, blamed));
}

std::vector<device_outcome> device_jobs::failed(const failure& why) {
  return end_all(queue_.failed(why.message));
}

std::optional<device_outcome> device_jobs::cancel(std::uint64_t job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return std::nullopt;
  const std::string text = "it was cancelled while its result was on the device";
  switch (queue_.cancel(job)) {
    case schedule::device_queue::cancelling::gone: {
      job_at_device here = std::move(found->second);
      jobs_.erase(found);
      return as_failed(std::move(here), job_status::cancelled, text);
    }
    // Keep the slot: the owner may still be reading it.
    case schedule::device_queue::cancelling::unwanted:
      ++unwanted_;
      return as_failed({found->second.record, {}, found->second.attempts}, job_status::cancelled, text);
    case schedule::device_queue::cancelling::unknown: break;
  }
  return std::nullopt;
}

std::vector<device_outcome> device_jobs::cancel_all(const std::string& why) {
  std::vector<std::uint64_t> all;
  for (const auto& [job, entry] : jobs_) all.push_back(job);
  std::vector<device_outcome> ended;
  for (const std::uint64_t job : all) {
    auto outcome = cancel(job);
    if (!outcome) continue;
    std::get<job_failure>(outcome->how).text = why;
    ended.push_back(std::move(*outcome));
  }
  return ended;
}

std::optional<std::string> device_jobs::waits_for_callers(steady_time now) {
  const auto who = buffers_ && !jobs_.empty() ? buffers_->held_too_long(now) : std::nullopt;
  if (!who) {
    waiting_said_ = false;
    return std::nullopt;
  }
  if (std::exchange(waiting_said_, true)) return std::nullopt;
  return fmt::format("{} at the device: {}",
                     jobs_.size() == 1 ? "a job waits" : fmt::format("{} jobs wait", jobs_.size()), *who);
}

}  // namespace penstock::jobs
