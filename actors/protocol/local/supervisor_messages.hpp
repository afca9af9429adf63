// Messages to the supervisor.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/base/fd.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

struct open_pool {};
/// Start no more workers; running ones finish their sample and are killed after `patience`.
struct close_pool {
  nanoseconds patience{0};
};

struct worker_started {
  worker_ref who;
  pid_t pid = -1;
  std::shared_ptr<protocol::worker_link> link;
  std::shared_ptr<unique_fd>
      parcels{};  ///< our end of the worker's socket for large arguments and results; null if there is none
  std::optional<std::uint64_t> host{};  ///< the loader host that runs the worker: `pid` is a process there; none: this machine
};
struct start_refused {
  worker_ref who;
  failure why;
};
/// Any message but batch_loaded, which goes to the scheduler.
struct worker_spoke {
  worker_ref who;
  protocol::from_worker message;
};
struct worker_lost_link {
  worker_ref who;
  std::string reason;
};
struct worker_exited {
  worker_ref who;
  process::exit_report report;
  std::string last_lines;
  std::vector<std::string> stack;  ///< the worker's stack, if it could still write it
  pid_t sender = 0;                ///< who sent the signal that ended it, if the worker could tell
};
struct partition_prepared {
  worker_ref who;
  std::optional<protocol::assign_slots> slots;  ///< none: refused; the failure is reported elsewhere
};
struct blame_decided {
  scheduler::blame_decision decision;
};
struct want_sacrificial {
  bool wanted = false;
};
struct fence_worker {
  worker_ref who;
  std::string reason;
};
/// The worker's current work was cancelled.
struct cancel_worker {
  worker_ref who;
  bool at_once = false;  ///< send SIGKILL without a previous SIGABRT
  std::string reason;
};
/// Jobs have their own time limits: poll often enough for the shortest.
struct limits_in_use {
  nanoseconds shortest{0};
};
/// The scheduler has asked the worker to stop, because it has no leases left.
struct worker_told_to_stop {
  worker_ref who;
};
/// Calls the function once the supervisor has handled and reported everything sent before. The function must
/// not block.
struct when_handled {
  std::function<void()> call;
};
struct scale_pool {
  std::uint32_t workers = 0;
};
/// A loader host offers a process for this place.
struct host_place_joined {
  std::uint32_t worker = 0;
};
/// The host no longer offers a process for this place. `lost`: the process has ended with the host; otherwise the host waits for
/// it to end. `rests`: the host stays, but an operator wants fewer of its workers.
struct host_place_left {
  std::uint32_t worker = 0;
  bool lost = false;
  bool rests = false;
};
/// A loader host was refused; the error gives the reason if no other host joins.
struct host_refused {
  std::string why;
};
struct restart_worker {
  std::uint32_t worker = 0;
  bool at_once = false;  ///< without letting the worker finish what it holds
};
struct drain_worker {
  std::uint32_t worker = 0;
};
/// A message to itself: poll all workers.
struct tick {
  std::uint64_t number = 0;  ///< the number of the latest scheduled tick; others are ignored
};
/// A message to itself: a restart or a kill is due.
struct wake {};

}  // namespace penstock::supervisor
