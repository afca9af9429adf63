#include "actors/scheduler/scheduler.hpp"

namespace penstock::scheduler {

bool report_forwarder::reported(worker_ref who, protocol::from_worker& message) {
  auto* const report = std::get_if<protocol::batch_loaded>(&message);
  if (report == nullptr) return false;
  if (queue_->add({who, std::move(*report)})) actors::tell(to_, leases_reported{queue_});
  return true;
}

}  // namespace penstock::scheduler
