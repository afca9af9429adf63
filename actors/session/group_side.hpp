// The group state of a session. Used by the session only.
#pragma once

#include "actors/gpu_owner/hand_over.hpp"
#include "actors/group/wires.hpp"
#include "actors/protocol/local/hand_over_gate.hpp"
#include "actors/session/group_membership.hpp"

#include <atomic>
#include <memory>
#include <optional>

namespace penstock::session {

struct group_side {
  explicit group_side(group::group_setup known) : membership(std::move(known)) {}

  const group::group_setup membership;
  const std::shared_ptr<group::told_ends> ends = std::make_shared<group::told_ends>();
  std::shared_ptr<group::hand_over_gate> gate;  // created together with the actors
  std::optional<gpu_owner::ready_batch>
      at_gate;                               // taken from the queue, waits at the gate; used by the consumer's thread
  std::atomic<std::uint64_t> delivered = 0;  // steps that the owner's process has acknowledged
  std::atomic<bool> over = false;            // ignore all later news of the group
};

}  // namespace penstock::session
