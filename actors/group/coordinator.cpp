#include "actors/group/coordinator.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/base/log.hpp"
#include "runtime/group/coordinator_driver.hpp"

namespace penstock::group {
namespace {

struct coordinator_state {
  coordinator_state() = default;
  ~coordinator_state() = default;
  coordinator_state(const coordinator_state&) = delete;
  coordinator_state& operator=(const coordinator_state&) = delete;

  coordinator_deps deps;
  std::shared_ptr<newest_reports> reports = std::make_shared<newest_reports>();
  std::shared_ptr<coordinator_wire> wire;
  std::optional<coordinator_driver> driver;
  bool ended = false;
};

using self_pointer = actors::self<coordinator_actor, coordinator_state>;

void end(self_pointer self) {
  coordinator_state& s = self->state;
  if (std::exchange(s.ended, true)) return;
  if (s.wire) s.wire->stop();
  s.wire.reset();
  s.deps.listen = {};
  s.deps.listener->coordinator_gone();
  self->quit();
}

struct carry_out {
  coordinator_state& s;

  void operator()(send_over_link& order) const {
    if (s.wire) s.wire->send(order.link, std::move(order.order));
  }
  void operator()(const draw_communicator_id& order) const {
    s.deps.listener->communicator_ordered({gpu_owner::communicate::act::draw_id, order.number, {}, 0});
  }
  void operator()(const coordinator_news& news) const {
    news.warns() ? log::warn("group", "{}", news.text) : log::info("group", "{}", news.text);
    if (news.what == coordinator_news::kind::rank_arrived)
      s.deps.listener->group_event(event_kind::rank_arrived, news.text);
    if (news.what == coordinator_news::kind::rank_lost)
      s.deps.listener->group_event(event_kind::rank_lost, news.text);
  }
};

void step(self_pointer self) {
  coordinator_state& s = self->state;
  if (s.ended) return;
  if (s.deps.ends && s.deps.ends->expected()) {
    s.driver->expects_ends();
    for (told_end& one : s.deps.ends->take()) s.driver->ended(std::move(one));
  }
  for (coordinator_command& c : s.driver->advance(self->clock().now())) std::visit(carry_out{s}, c);
  if (s.driver->may_go()) end(self);
}

void take_reports(self_pointer self) {
  coordinator_state& s = self->state;
  for (const auto& [link, report] : s.reports->take()) s.driver->reported(link, report, self->clock().now());
}

coordinator_actor::behavior_type behave(self_pointer self, coordinator_deps deps) {
  coordinator_state& s = self->state;
  s.deps = std::move(deps);
  s.driver.emplace(s.deps.settings, s.deps.group, self->clock().now());
  s.wire = s.deps.listen(coordinator_actor(self), s.reports);
  const nanoseconds look_every = s.deps.settings.look_every();
  self->delayed_send(coordinator_actor(self), look_every, group_beat{});
  const auto now = [self] { return self->clock().now(); };
  return {
      [self](const reports_arrived&) {
        take_reports(self);
        step(self);
      },
      [self](const member_closed& news) { self->state.driver->closed(news.link); },
      [self, now](const member_process_ended& news) {
        take_reports(self);  // the final reports
        self->state.driver->process_ended(news.link, now());
        step(self);
      },
      [self, now](const member_held& news) { self->state.driver->held(news.link, now()); },
      [self](const address_taken& news) {
        self->state.driver->listening(news.where);
        self->state.deps.listener->cannot_listen({});
        step(self);
      },
      [self](const address_refused& news) {
        self->state.driver->not_listening(news.why);
        self->state.deps.listener->cannot_listen(news.why);
        step(self);
      },
      [self](const unknown_peer_came& came) {
        self->state.driver->unknown_peer(came.who);
        self->state.deps.listener->peer_refused(came.who);
        step(self);
      },
      [self](const communicator_drawn& news) {
        self->state.driver->communicator_drawn(news.number, news.id);
        step(self);
      },
      [self](const links_refused& news) {
        log::error("group", "{}", news.why.message);
        end(self);
      },
      [self, now](const leave_group&) {
        self->state.driver->leave(now());
        step(self);
      },
      [self](const drop_group&) { end(self); },
      [self, look_every](const group_beat&) {
        if (self->state.ended) return;
        self->delayed_send(coordinator_actor(self), look_every, group_beat{});
        step(self);
      },
  };
}

}  // namespace

coordinator_actor spawn_coordinator(actors::actor_system& system, coordinator_deps deps) {
  return actors::spawn(system, behave, std::move(deps));
}

}  // namespace penstock::group
