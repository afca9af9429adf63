// Forwards workers' reports from the io thread to the job scheduler, in bursts and without the supervisor.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/listeners.hpp"

#include <functional>
#include <memory>

namespace penstock::jobs {

class report_forwarder final : public supervisor::report_listener {
 public:
  /// While `few_jobs` returns true, the io thread runs the job scheduler itself.
  report_forwarder(job_scheduler_actor to, std::function<bool()> few_jobs)
      : to_(std::move(to)), few_jobs_(std::move(few_jobs)) {}
  bool reported(worker_ref who, protocol::from_worker& message) override;

 private:
  job_scheduler_actor to_;
  const std::function<bool()> few_jobs_;
  const std::shared_ptr<job_report_queue> queue_ = std::make_shared<job_report_queue>();
};

}  // namespace penstock::jobs
