// The jobs of a pool whose results are on the device, or on their way to it: the decisions of
// schedule::device_queue, with the records and results that belong to them. Part of the job scheduler.
#pragma once

#include "actors/jobs/device_result.hpp"
#include "actors/jobs/job_record.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/schedule/device_queue.hpp"

#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

namespace penstock::jobs {

/// How a job has ended. A job cancelled on the device is not reported again.
struct device_outcome {
  std::shared_ptr<job_record> record;
  std::uint32_t attempts = 0;
  std::variant<std::shared_ptr<kept_result>, job_failure> how;
};

class device_jobs {
 public:
  /// `buffers`: null unless callers may hold buffers.
  device_jobs(std::shared_ptr<lent_buffers> buffers, std::shared_ptr<admission> meter)
      : buffers_(std::move(buffers)), meter_(std::move(meter)) {}

  /// Returns the job's outcome; empty if it comes later.
  [[nodiscard]] std::optional<device_outcome> add(std::shared_ptr<job_record> record, slot_result result,
                                                  std::uint32_t attempts);
  /// `first`: the first job in the whole pool whose result must stay on the device; 0: none.
  [[nodiscard]] std::vector<upload_order> orders(std::uint64_t first);

  [[nodiscard]] std::optional<device_outcome> answered(device_answer answer);
  [[nodiscard]] std::vector<device_outcome> owner_lost(const device_lost& news);
  [[nodiscard]] std::vector<device_outcome> failed(const failure& why);
  /// If the job is here, returns its outcome, which the caller of this function reports.
  [[nodiscard]] std::optional<device_outcome> cancel(std::uint64_t job);
  /// Cancels everything for this reason.
  [[nodiscard]] std::vector<device_outcome> cancel_all(const std::string& why);

  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }
  /// The number of jobs here, without cancelled ones, which stay until the owner has answered.
  [[nodiscard]] std::size_t wanted() const noexcept { return jobs_.size() - unwanted_; }
  /// What jobs here wait for; returned once per wait, when callers have held all buffers for too long.
  [[nodiscard]] std::optional<std::string> waits_for_callers(steady_time now);

 private:
  struct job_at_device {
    std::shared_ptr<job_record> record;
    slot_result result;
    std::uint32_t attempts = 0;
  };
  [[nodiscard]] std::optional<device_outcome> end(const schedule::device_departure& gone);
  [[nodiscard]] std::vector<device_outcome> end_all(const std::vector<schedule::device_departure>& gone);
  [[nodiscard]] device_outcome as_failed(job_at_device job, job_status status, std::string text,
                                         std::vector<std::string> causes = {}) const;

  std::shared_ptr<lent_buffers> buffers_;
  std::shared_ptr<admission> meter_;
  schedule::device_queue queue_;
  std::unordered_map<std::uint64_t, job_at_device> jobs_;  // exactly the jobs in queue_
  std::size_t unwanted_ = 0;
  bool waiting_said_ = false;
};

}  // namespace penstock::jobs
