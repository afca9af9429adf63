// Messages to the keeper of the GPU owner's process, in addition to those to an owner.
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
/// The process closed its link (empty reason) or violated the protocol. It may still be running.
struct owner_lost_link {
  std::uint32_t incarnation = 0;
  std::string reason;
};
struct owner_exited {
  std::uint32_t incarnation = 0;
  process::exit_report report;
  std::string last_lines;
};
/// An operator's order. The death that it causes is never counted.
struct restart_owner {};
/// A message to itself: poll.
struct keeper_tick {};
/// A message to itself: a restart or a kill is due.
struct wake_keeper {};

}  // namespace penstock::supervisor
