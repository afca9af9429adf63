// What the session actor hears.
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
/// A worker of a pool: the functions that it serves.
struct worker_serves {
  worker_ref who;
  std::vector<std::string> functions;
};
/// To be remembered by the next run, and to be forgotten.
struct sample_quarantined {
  scheduler::lost_sample lost;
};
struct quarantine_released {
  std::uint64_t sample = 0;
};
struct leave {};

}  // namespace penstock::session
