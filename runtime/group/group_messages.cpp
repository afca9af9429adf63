#include "runtime/group/group_messages.hpp"

#include <fmt/core.h>

namespace penstock::group {

std::string name_of(const rank_card& card) {
  return fmt::format("rank {} ({}, pid {})", card.rank, card.host, card.pid);
}

std::string in_words(const group_cause& cause) {
  if (!cause.host.empty())
    return fmt::format("rank {} ({}, pid {}): {}", cause.rank, cause.host, cause.pid, cause.cause);
  // The rank has never reported, so its host is unknown.
  const std::string who = fmt::format("rank {}", cause.rank);
  return cause.cause.starts_with(who) ? cause.cause : who + ": " + cause.cause;
}

const char* name_of(communicator_state::how at) noexcept {
  switch (at) {
    case communicator_state::how::making: return "is being made";
    case communicator_state::how::made: return "is made";
    case communicator_state::how::broken: return "is broken";
    case communicator_state::how::aborting: return "is being aborted";
    case communicator_state::how::aborted: return "is aborted";
    case communicator_state::how::none: break;
  }
  return "does not exist";
}

}  // namespace penstock::group
