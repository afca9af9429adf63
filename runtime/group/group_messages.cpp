#include "runtime/group/group_messages.hpp"

#include <fmt/core.h>

namespace penstock::group {

std::string name_of(const rank_card& card) {
  return fmt::format("rank {} ({}, pid {})", card.rank, card.host, card.pid);
}

}  // namespace penstock::group
