// The jobs of a pool whose results are at the device, or on their way to it: what schedule::device_queue decides, with the
// records and results that belong to it. A part of the job scheduler.
#pragma once

#include "actors/jobs/device_result.hpp"
#include "actors/jobs/job_record.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/schedule/device_queue.hpp"

#include <functional>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

namespace penstock::jobs {

/// How a job has ended. One that was cancelled at the device is not reported again.
struct device_outcome {
  std::shared_ptr<job_record> record;
  std::uint32_t attempts = 0;
  std::variant<std::shared_ptr<kept_result>, job_failure> how;
};

class device_jobs {
 public:
  /// `buffers`: none unless callers may have them.
  device_jobs(std::shared_ptr<lent_buffers> buffers, std::shared_ptr<admission> meter)
      : buffers_(std::move(buffers)), meter_(std::move(meter)) {}

  /// Nothing: its outcome comes later.
  [[nodiscard]] std::optional<device_outcome> add(std::shared_ptr<job_record> record, slot_result result,
                                                  std::uint32_t attempts);
  /// `first`: the first job of all in the pool whose result is to stay on the device; 0: none.
  [[nodiscard]] std::vector<upload_order> orders(std::uint64_t first);

  [[nodiscard]] std::optional<device_outcome> answered(device_answer answer);
  [[nodiscard]] std::vector<device_outcome> owner_lost(const device_lost& news);
  [[nodiscard]] std::vector<device_outcome> failed(const failure& why);
  /// Its record, if it is here: the caller fails it.
  [[nodiscard]] std::optional<device_outcome> cancel(std::uint64_t job);
  /// Everything, as cancelled for this reason.
  [[nodiscard]] std::vector<device_outcome> cancel_all(const std::string& why);

  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }
  /// What jobs here wait for, the first time that callers have held all buffers for so long.
  [[nodiscard]] std::optional<std::string> waits_for_callers(nanoseconds time, steady_time now);

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
  std::unordered_map<std::uint64_t, job_at_device> jobs_;  // those of queue_, and no others
  bool waiting_said_ = false;
};

}  // namespace penstock::jobs
