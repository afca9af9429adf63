#include "actors/group/coordinator.hpp"

#include "runtime/base/log.hpp"

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace penstock::group {
namespace {

struct coordinator_state {
  coordinator_state() = default;
  ~coordinator_state() = default;
  coordinator_state(const coordinator_state&) = delete;
  coordinator_state& operator=(const coordinator_state&) = delete;

  coordinator_surroundings around;
  std::shared_ptr<newest_reports> reports = std::make_shared<newest_reports>();
  std::shared_ptr<coordinator_wire> wire;
  std::optional<group_book> book;
  std::map<std::uint64_t, link_id> links;      // by process: where it reported last
  std::map<link_id, std::uint64_t> processes;  // the other way round; of links that are open
  bool address_taken_by_others = false;
  std::optional<steady_time> leaving_since;
  bool ended = false;
};

using self_pointer = coordinator_actor::stateful_pointer<coordinator_state>;

void end(self_pointer self) {
  coordinator_state& s = self->state;
  if (std::exchange(s.ended, true)) return;
  if (s.wire) s.wire->stop();
  s.wire.reset();
  s.around.listen = {};
  s.around.news->coordinator_gone();
  self->quit();
}

struct carry_out {
  coordinator_state& s;

  void operator()(send_order& order) const {
    const auto link = s.links.find(order.process);
    if (link != s.links.end() && s.wire) s.wire->send(link->second, std::move(order.order));
  }
  void operator()(const draw_communicator_id& order) const {
    s.around.news->communicator_ordered({gpu_owner::communicate::act::draw_id, order.number, {}, 0});
  }
  void operator()(const group_event& news) const {
    switch (news.what) {
      case group_event::kind::joined:
      case group_event::kind::back:
      case group_event::kind::replaced: return tell(event_kind::rank_arrived, news.text);
      case group_event::kind::lost: return tell(event_kind::rank_lost, news.text);
      case group_event::kind::refused:
      case group_event::kind::established:
      case group_event::kind::going:
      case group_event::kind::stopping:
      case group_event::kind::over: break;  // every member tells these
    }
  }
  void tell(event_kind what, const std::string& text) const {
    log::info("group", "{}", text);
    s.around.news->group_event(what, text);
  }
};

/// Nobody can hear anything more from it. A session that fails at its start leaves before the first report arrives, its
/// own included: for a while it stays, because the others have to learn why.
bool may_go(const coordinator_state& s, steady_time now) {
  if (!s.leaving_since) return false;
  if (!s.links.empty()) return s.book->may_leave();
  return s.address_taken_by_others || now - *s.leaving_since >= s.around.settings.end_grace;
}

void step(self_pointer self) {
  coordinator_state& s = self->state;
  if (s.ended) return;
  const steady_time now = self->clock().now();
  for (group_command& c : s.book->advance(now)) std::visit(carry_out{s}, c);
  if (may_go(s, now)) end(self);
}

void take_reports(self_pointer self) {
  coordinator_state& s = self->state;
  for (auto& [link, report] : s.reports->take()) {
    s.links[report.card.process] = link;
    s.processes[link] = report.card.process;
    s.book->heard(report, self->clock().now());
  }
}

/// What says of a process that it has ended is the end of its last link.
void forget_unless_last(coordinator_state& s, link_id link) {
  const auto process = s.processes.find(link);
  if (process != s.processes.end() && s.links.at(process->second) != link) s.processes.erase(process);
}

void lose_process(self_pointer self, link_id link) {
  coordinator_state& s = self->state;
  const auto process = s.processes.find(link);
  if (process == s.processes.end()) return;
  s.book->gone(process->second, "its process has ended", self->clock().now());
  s.processes.erase(process);
}

coordinator_actor::behavior_type behave(self_pointer self, coordinator_surroundings around) {
  coordinator_state& s = self->state;
  s.around = std::move(around);
  s.book.emplace(s.around.settings, self->clock().now());
  s.wire = s.around.listen(coordinator_actor(self), s.reports);
  self->delayed_send(coordinator_actor(self), s.around.settings.beat() / 2, group_beat{});
  return {
      [self](const reports_arrived&) {
        take_reports(self);
        step(self);
      },
      // Its process may connect again: what counts is whether it reports.
      [self](const member_closed& news) { forget_unless_last(self->state, news.link); },
      [self](const member_process_ended& news) {
        take_reports(self);  // what it said last
        lose_process(self, news.link);
        step(self);
      },
      [self](const address_taken& news) {
        self->state.address_taken_by_others = false;
        log::info("group", "the group '{}' meets at {}", self->state.around.group, news.where);
      },
      [self](const address_refused& news) {
        self->state.address_taken_by_others = true;
        log::warn("group", "the ranks of '{}' cannot meet yet: {}", self->state.around.group, news.why);
      },
      [self](const stranger_came& came) {
        log::warn("group", "the group '{}' has refused {}", self->state.around.group, came.text);
      },
      [self](const communicator_drawn& news) {
        self->state.book->communicator_id(news.number, news.id);
        step(self);
      },
      [self](const links_refused& news) {
        log::error("group", "{}", news.why.message);
        end(self);
      },
      [self](const leave_group&) {
        if (!self->state.leaving_since) self->state.leaving_since = self->clock().now();
        step(self);
      },
      [self](const drop_group&) { end(self); },
      [self](const group_beat&) {
        if (self->state.ended) return;
        self->delayed_send(coordinator_actor(self), self->state.around.settings.beat() / 2, group_beat{});
        step(self);
      },
  };
}

}  // namespace

coordinator_actor spawn_coordinator(caf::actor_system& system, coordinator_surroundings around) {
  return system.spawn(behave, std::move(around));
}

}  // namespace penstock::group
