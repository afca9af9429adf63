#include "runtime/group/shared_communicator.hpp"

#include <algorithm>

namespace penstock::group {
namespace {

/// No two coordinators may use the same number, because an order of the earlier one may still be in
/// flight. The upper half is the generation. Two groups of equal generation, one of them unreachable,
/// differ in the 16 bits from `process`.
std::uint64_t first_of(std::uint64_t generation, std::uint64_t process) {
  return (generation << 32U) + ((process & 0xFFFFU) << 16U) + 1;
}

}  // namespace

bool shared_communicator::tend(group_view& view, const std::vector<rank>& ranks, std::uint64_t process) {
  using how = communicator_state::how;
  const auto gave_up = [&](const rank& r) {
    if (r.latest == nullptr) return false;
    const communicator_state& c = r.latest->communicator;
    return c.number == view.communicator &&
           (c.at == how::broken || c.at == how::aborting || c.at == how::aborted);
  };
  const auto clean = [](const rank& r) { return !r.present || is_clean(r.latest->communicator); };
  const auto made = [&](const rank& r) {
    return r.latest->communicator.number == view.communicator && r.latest->communicator.at == how::made;
  };
  const auto through = [&](const rank& r) { return r.finished && r.latest->steps <= view.agreed; };
  const bool complete = std::ranges::all_of(ranks, &rank::in_hand);
  if ((at_ == stage::making || at_ == stage::ready) && std::ranges::any_of(ranks, gave_up))
    at_ = stage::aborting;
  if (at_ == stage::aborting && std::ranges::all_of(ranks, clean)) at_ = stage::idle;
  if (at_ == stage::making && complete && std::ranges::all_of(ranks, made)) at_ = stage::ready;
  // A rank that has finished cannot, and need not, take part in another communicator.
  if (at_ != stage::idle || !complete || std::ranges::any_of(ranks, through) ||
      view.phase != group_phase::running)
    return false;
  at_ = stage::drawing;
  view.communicator = std::max(view.communicator + 1, first_of(view.generation, process));
  return true;
}

void shared_communicator::agree_on_snapshot(group_view& view, const std::vector<rank>& ranks) const {
  for (const rank& r : ranks) {
    if (r.in_hand) view.agreed = std::max(view.agreed, r.latest->settled);
  }
  if (!ready()) return;
  const auto& first = ranks.front().latest->held;
  for (auto step = first.rbegin(); step != first.rend() && *step > view.agreed; ++step) {
    const auto has_it = [&](const rank& r) {
      const auto& held = r.latest->held;
      return std::ranges::find(held, *step) != held.end();
    };
    if (!std::ranges::all_of(ranks, has_it)) continue;
    view.agreed = *step;
    return;
  }
}

communicator_order shared_communicator::order(std::uint64_t number) const {
  using act = communicator_order::act;
  switch (at_) {
    case stage::making: return {act::make, number, id_};
    case stage::ready: return {act::use, number, {}};
    case stage::aborting: return {act::abort, number, {}};
    case stage::idle:
    case stage::drawing: break;
  }
  return {act::none, number, {}};
}

}  // namespace penstock::group
