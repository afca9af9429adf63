#include "actors/jobs/report_forwarder.hpp"

#include "actors/caf/shared_actor.hpp"

namespace penstock::jobs {

bool report_forwarder::reported(worker_ref who, protocol::from_worker& message) {
  const auto* const done = std::get_if<protocol::jobs_done>(&message);
  if (done == nullptr) return false;
  if (!queue_->add({who, *done})) return true;
  if (few_jobs_()) {
    actors::tell_and_run(to_, jobs_reported{queue_});
  } else {
    actors::tell(to_, jobs_reported{queue_});
  }
  return true;
}

}  // namespace penstock::jobs
