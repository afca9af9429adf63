#include "tools/penstock/chaos/chaos_goal.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace penstock::cli {

std::string goal_of(const fault_injector_settings& n) {
  std::string kinds;
  for (const chaos_kind kind : n.kinds) kinds += (kinds.empty() ? "" : ", ") + std::string(name_of(kind));
  std::string goal;
  if (n.faults) goal = counted(*n.faults, "fault");
  if (n.time) goal += (goal.empty() ? "faults for " : ", or ") + duration_for_people(*n.time);
  goal += fmt::format(" of {}, {:g} a second on average; seed {}", kinds, n.rate, n.seed);
  return goal;
}

std::string time_left_of(const fault_injector_settings& n, std::uint64_t faults, nanoseconds under_fire) {
  std::optional<nanoseconds> left;
  if (n.faults && faults > 0) {
    const double each = static_cast<double>(under_fire.count()) / static_cast<double>(faults);
    left = nanoseconds(
        static_cast<std::int64_t>(each * static_cast<double>(*n.faults - std::min(*n.faults, faults))));
  }
  if (n.time) {
    const nanoseconds rest = std::max(*n.time - under_fire, nanoseconds(0));
    left = left ? std::min(*left, rest) : rest;
  }
  if (!left || *left < std::chrono::seconds(1)) return "";
  return "; about " + duration_for_people(std::chrono::ceil<std::chrono::seconds>(*left)) + " left";
}

}  // namespace penstock::cli
