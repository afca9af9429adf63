// What the keeper of the GPU owner's process hears besides what an owner hears.
#pragma once

#include "actors/protocol/link.hpp"
#include "runtime/base/exit_report.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace penstock::supervisor {

struct owner_started {
  std::uint32_t incarnation = 0;
  pid_t pid = -1;
  std::shared_ptr<protocol::owner_link> link;
};
struct owner_refused {
  std::uint32_t incarnation = 0;
  failure why;
};
struct owner_spoke {
  std::uint32_t incarnation = 0;
  protocol::from_owner message;
};
/// It closed its link (empty reason) or broke the protocol. The process may live on.
struct owner_lost_link {
  std::uint32_t incarnation = 0;
  std::string reason;
};
struct owner_exited {
  std::uint32_t incarnation = 0;
  process::exit_report report;
  std::string last_lines;
};
/// An operator's order: never counts.
struct restart_owner {};
/// Look at the clock; comes by itself.
struct keeper_tick {};
/// Something is due now: a restart, a kill.
struct wake_keeper {};

}  // namespace penstock::supervisor
