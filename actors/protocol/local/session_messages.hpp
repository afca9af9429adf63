// Messages to the session actor.
#pragma once

#include "actors/protocol/local/scheduler_messages.hpp"
#include "actors/protocol/messages.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::session {

struct device_ready {};
struct worker_described {
  worker_ref who;
  protocol::dataset_described dataset;
};
/// A pool's worker describes its functions.
struct worker_serves {
  worker_ref who;
  std::vector<std::string> functions;
};
/// Add a sample to the quarantine file, or remove one from it.
struct sample_quarantined {
  scheduler::lost_sample lost;
};
struct quarantine_released {
  std::uint64_t sample = 0;
};
/// A message to itself: allocate the next slots.
struct reserve_more {};
struct leave {};

}  // namespace penstock::session
