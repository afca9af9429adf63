#include "actors/jobs/report_forwarder.hpp"

#include <caf/send.hpp>

namespace penstock::jobs {

bool report_forwarder::reported(worker_ref who, protocol::from_worker& message) {
  const auto* const done = std::get_if<protocol::jobs_done>(&message);
  if (done == nullptr) return false;
  if (!queue_->add({who, *done})) return true;
  if (few_jobs_()) {
    here_.send(to_, jobs_reported{queue_});
  } else {
    caf::anon_send(to_, jobs_reported{queue_});
  }
  return true;
}

}  // namespace penstock::jobs
