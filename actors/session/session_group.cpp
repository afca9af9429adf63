// A session as a rank of a group: its member actor, rank 0's coordinator, and the group's orders.
#include "actors/caf/caf.hpp"
#include "actors/group/coordinator.hpp"
#include "actors/group/member.hpp"
#include "actors/session/session_listener.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/log.hpp"

#include <algorithm>

namespace penstock {
namespace {

// How often the consumer calls while_waiting and checks for failures while it waits at the gate, which can
// take long.
constexpr nanoseconds looked_at_every = std::chrono::milliseconds(50);

}  // namespace

void Session::body::spawn_group(engine& e) {
  engine* const all = &e;
  const group::group_setup& m = group_->membership;
  group_->gate =
      std::make_shared<group::hand_over_gate>([all] { actors::tell(all->member, group::limit_reached{}); });
  const bool coordinates = m.member.card.rank == 0;
  ending_.group_begins(coordinates ? 2 : 1);
  group::member_deps deps;
  deps.settings = m.member;
  deps.group = m.links.group;
  deps.where = group::text_of(m.links.address);
  deps.gate = group_->gate;
  deps.connect = [all, links = m.links](group::member_actor actor,
                                          std::shared_ptr<group::newest_order> orders) {
    return group::open_member_wire(*all->io, links, std::move(orders), std::move(actor));
  };
  deps.listener = e.listener.get();
  e.member = group::spawn_member(*e.system, std::move(deps));
  if (!coordinates) return;
  group::coordinator_deps of_all;
  of_all.settings = m.group;
  of_all.group = m.links.group;
  of_all.listen = [all, links = m.links](group::coordinator_actor actor,
                                         std::shared_ptr<group::newest_reports> reports) {
    return group::open_coordinator_wire(*all->io, links, std::move(reports), std::move(actor));
  };
  of_all.listener = e.listener.get();
  of_all.ends = group_->ends;
  e.coordinator = group::spawn_coordinator(*e.system, std::move(of_all));
}

/// Asks the group to stop at a common step. False if there is no group to ask, or no time for it.
bool Session::body::ask_group_to_stop() {
  const std::lock_guard hold(mutex_);
  if (!group_ || group_->over || !engine_ || !engine_->member) return false;
  actors::tell(engine_->member, group::stop_group{});
  return true;
}

template <class Message>
void Session::body::tell_member(Message what) {
  const std::lock_guard hold(mutex_);
  if (engine_ && engine_->member) actors::tell(engine_->member, std::move(what));
}

void Session::body::tell_group_of_failure(const std::string& why) {
  tell_member(group::session_failed{why});
}

/// Tells the group that all requested batches have been handed out.
void Session::body::tell_group_of_end() {
  if (group_ && !ending_.stopped() && !group_->over) tell_member(group::stream_delivered{});
}

/// Reports a failure that came during startup, before the member actor existed. Call it before
/// the group learns of a stop: otherwise the group would end without a cause. Call with mutex_ held.
void Session::body::tell_group_of_earlier_failure() {
  if (!engine_->member) return;
  if (const auto why = board_.report({}, now()).error)
    actors::tell(engine_->member, group::session_failed{why->message});
}

void Session::body::leave_group() {
  const std::lock_guard hold(mutex_);
  if (!engine_ || !engine_->member) return;
  tell_group_of_earlier_failure();
  actors::tell(engine_->member, group::leave_group{});
  if (engine_->coordinator) actors::tell(engine_->coordinator, group::leave_group{});
}

void Session::body::drop_group(engine& e) {
  if (e.member) actors::tell(e.member, group::drop_group{});
  if (e.coordinator) actors::tell(e.coordinator, group::drop_group{});
}

void Session::body::expect_lost_processes() {
  if (group_) group_->ends->expect();
}

void Session::body::processes_lost(const std::vector<lost_process_report>& lost) {
  board_.processes_lost(lost);
  if (!group_) return;
  const std::uint32_t rank = group_->membership.member.card.rank;
  const auto predecessor = std::ranges::find(lost.rbegin(), lost.rend(), rank, &lost_process_report::rank);
  if (predecessor != lost.rend()) {
    tell(host::event_of(event_kind::rank_lost,
                        fmt::format("rank {} (pid {}): {}: {}; this process takes its place", rank, predecessor->pid, group::process_has_ended, predecessor->end)));
  }
  for (const lost_process_report& one : lost) group_->ends->put({one.rank, one.pid, one.end});
  const std::lock_guard hold(mutex_);
  if (engine_ && engine_->coordinator) actors::tell(engine_->coordinator, group::reports_arrived{});
}

/// After the group has stopped at a common step: ends the session once its batches up to that step are delivered.
void Session::body::end_with_group() {
  if (has_keeper() && !group_->gate->ends_with(group_->delivered)) return;
  ending_.asked_by("another rank");
  end_within(std::nullopt);
}

/// The queue's next batch that may be handed out. In a group the batch waits at the gate until the group lets
/// it pass; an early return leaves it there.
gpu_owner::hand_over::taken Session::body::take_through_gate() {
  using taken = gpu_owner::hand_over::taken;
  std::optional<gpu_owner::ready_batch>& waiting = group_->at_gate;
  while (true) {
    if (waiting && !cursor_.wants(waiting->seek_number)) {
      home_->give_back(waiting->buffer);
      waiting.reset();
    }
    if (!waiting) {
      taken next = take_from_queue();
      auto* const ready = std::get_if<gpu_owner::ready_batch>(&next);
      if (ready == nullptr) return next;
      waiting = std::move(*ready);
      continue;
    }
    switch (group_->gate->hand_out_next(now())) {
      case group::gate_answer::go: return *std::exchange(waiting, std::nullopt);
      case group::gate_answer::over: return gpu_owner::hand_over::stream_ended{};
      case group::gate_answer::wait: break;
    }
    if (auto end = consumer_->ended()) return std::move(*end);
    group_->gate->wait_for_change(looked_at_every);
    if (options_.while_waiting) options_.while_waiting();
  }
}

}  // namespace penstock
