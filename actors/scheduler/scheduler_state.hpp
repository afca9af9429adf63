// What the scheduler knows: the state of its actor.
#pragma once

#include "actors/scheduler/host_losses.hpp"
#include "actors/scheduler/late_workers.hpp"
#include "actors/scheduler/lease_times.hpp"
#include "actors/scheduler/planned_source.hpp"
#include "actors/scheduler/scheduler.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>

namespace penstock::scheduler {

struct joined_worker {
  worker_ref who;
  std::shared_ptr<protocol::worker_link> link;
};

struct scheduler_state {
  protocol::peers others;
  scheduler_deps deps;
  std::unique_ptr<planned_source> source;
  std::unique_ptr<schedule::ledger> ledger;
  std::unique_ptr<schedule::epoch_book> book;
  std::optional<schedule::failure_limit> failures;
  schedule::departures departures;
  late_workers late;
  host_losses hosts;
  std::map<std::uint32_t, joined_worker> workers;
  lease_times times;
  std::deque<upload_order> at_gate;  // at most one per leased slot
  std::uint64_t seek_number = 0;
  std::uint64_t era = 0;
  bool paused = false;  // an operator has paused the stream
  bool decision_due = false;
  bool sacrificial = false;
  bool finished_told = false;
};

}  // namespace penstock::scheduler
