// Forwards workers' reports from the io thread to the job scheduler, in bursts and bypassing the supervisor.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/news.hpp"

#include <memory>

namespace penstock::jobs {

class report_forwarder final : public supervisor::report_listener {
 public:
  explicit report_forwarder(job_scheduler_actor to) : to_(std::move(to)) {}
  bool reported(worker_ref who, protocol::from_worker& message) override;

 private:
  job_scheduler_actor to_;
  const std::shared_ptr<job_report_queue> queue_ = std::make_shared<job_report_queue>();
};

}  // namespace penstock::jobs
