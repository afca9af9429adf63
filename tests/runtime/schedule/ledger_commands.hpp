// Commands of a ledger, and what its workers answer. Shared by the tests of the ledger's rules.
#pragma once

#include "runtime/schedule/ledger.hpp"

#include <cstdint>
#include <variant>
#include <vector>

namespace penstock::testing::ledgers {

template <class T>
std::vector<T> only(const std::vector<schedule::command>& commands) {
  std::vector<T> found;
  for (const schedule::command& c : commands) {
    if (const auto* hit = std::get_if<T>(&c)) found.push_back(*hit);
  }
  return found;
}

inline schedule::load_report success(const schedule::load_command& load) {
  return {load.lease, static_cast<std::uint32_t>(load.samples.size()), {}, {}};
}

inline constexpr worker_ref a1{0, 1};
inline constexpr worker_ref a2{0, 2};
inline constexpr worker_ref b1{1, 1};
inline constexpr worker_ref helper1{9, 1};

inline schedule::flight_mark mark_of(const schedule::load_command& load, std::uint32_t row) {
  return {load.lease.slot, load.lease.generation, row};
}

}  // namespace penstock::testing::ledgers
