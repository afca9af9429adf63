#include "actors/group/member.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/group/rank_driver.hpp"

#include <fmt/core.h>

namespace penstock::group {
namespace {

struct member_state {
  member_state() = default;
  ~member_state() = default;
  member_state(const member_state&) = delete;
  member_state& operator=(const member_state&) = delete;

  member_deps deps;
  std::shared_ptr<newest_order> orders = std::make_shared<newest_order>();
  std::shared_ptr<member_wire> wire;
  std::optional<rank_driver> rank;  // set at the first message
  std::string no_address;           // why rank 0's coordinator cannot listen
  std::string refused;              // the last peer that rank 0 refused
  bool open = false;                // whether the gate is open, as last reported
  group_phase phase = group_phase::gathering;  // `phase` and `joined` are as last reported to the session
  bool joined = false;
  std::uint64_t agreed = 0;  // the agreed step, as last reported to the owner
  bool ended = false;

  [[nodiscard]] const rank_card& card() const { return deps.settings.card; }
};

using self_pointer = actors::self<member_actor, member_state>;

const char* name_of(group_phase phase) {
  switch (phase) {
    case group_phase::gathering: return "joining";
    case group_phase::describing: return "describing";
    case group_phase::running: return "running";
    case group_phase::stopping: return "stopping";
    case group_phase::over: break;
  }
  return "over";
}

run_outcome as_report(group_outcome how) {
  switch (how) {
    case group_outcome::finished: return run_outcome::finished;
    case group_outcome::stopped: return run_outcome::stopped;
    case group_outcome::failed: return run_outcome::failed;
    case group_outcome::none: break;
  }
  return run_outcome::running;
}

void tell_state(const member_state& s) {
  const rank_driver& rank = *s.rank;
  const group_view& view = rank.book().view();
  group_status now;
  now.group = s.deps.group;
  now.rank = s.card().rank;
  now.world_size = s.card().world_size;
  now.phase = rank.end() ? "over" : name_of(view.phase);
  now.waits_for = rank.waits_for(s.open);
  if (!rank.joined() || s.deps.settings.waits_for_lost) now.missing = rank.lost();
  now.steps = s.deps.gate->handed_out();
  now.generation = view.generation;
  now.stop_at = view.limit;
  if (rank.end()) {
    now.outcome = as_report(rank.end()->how);
    if (const auto& cause = rank.end()->cause)
      now.first_cause = group_cause_report{cause->rank, cause->host, cause->pid, cause->cause};
  }
  s.deps.listener->group_changed(now);
}

void tell(const member_state& s, event_kind what, std::string text) {
  log::info("group", "{}", text);
  s.deps.listener->group_event(what, std::move(text));
}

/// Reports what the group has agreed on since the previous call.
void follow_phase(member_state& s) {
  const bool alone = s.rank->book().delivers_the_rest();
  if (s.rank->joined() && !std::exchange(s.joined, true)) {
    tell(s, event_kind::group_joined,
         alone ? fmt::format("the group '{}' has finished: rank {} delivers its remaining batches alone",
                             s.deps.group, s.card().rank)
               : fmt::format("rank {} has joined the group '{}' of {}", s.card().rank, s.deps.group,
                             counted(s.card().world_size, "rank")));
    s.deps.listener->joined();
  }
  const group_phase phase = s.rank->book().view().phase;
  if (std::exchange(s.phase, phase) == phase) return;
  if (phase == group_phase::running)
    tell(s, event_kind::group_running,
         "all ranks have described the same dataset: batches may be handed out");
  if (phase == group_phase::stopping) tell(s, event_kind::group_stopping, "all ranks stop at the same step");
}

/// Call before the rest of the same order is carried out: a new communicator is for the steps after the
/// agreed one.
void follow_agreement(member_state& s) {
  const std::uint64_t agreed = s.rank->book().view().agreed;
  if (!s.deps.settings.communicator || agreed <= s.agreed) return;
  s.agreed = agreed;
  s.deps.listener->communicator_ordered({gpu_owner::communicate::act::agreed, 0, {}, agreed});
}

void begin_gate(const member_state& s) {
  const group_phase phase = s.rank->book().view().phase;
  const bool begun = s.rank->book().delivers_the_rest() || phase == group_phase::running ||
                     phase == group_phase::stopping;
  if (begun && s.deps.gate->begin()) s.deps.listener->gate_moved();
}

void wake_waiting(const member_state& s) {
  if (s.deps.gate->take_waiting()) s.deps.listener->gate_moved();
}

void end_gate(const member_state& s) {
  s.deps.gate->end();
  wake_waiting(s);
}

/// Gives the gate the right to hand out batches and reads how many it has handed out, in one step, so that
/// the number that a frozen rank reports is exact.
void move_gate(member_state& s, steady_time now) {
  const auto right = s.rank->book().right();
  s.rank->book().delivered(right ? s.deps.gate->open(right->until, right->limit) : s.deps.gate->shut());
  if (right && now < right->until) wake_waiting(s);
  s.open = s.rank->book().may_hand_out(now);
}

void tell_end(member_state& s, const end_rank& end) {
  if (s.deps.settings.communicator)
    s.deps.listener->communicator_ordered({gpu_owner::communicate::act::free, 0, {}, 0});
  // Publish a failure before ending the gate, where the consumer may be waiting.
  if (end.how != group_outcome::failed) end_gate(s);
  std::string text = fmt::format(
      "the group '{}' {}", s.deps.group,
      end.how == group_outcome::stopped ? "was stopped" : fmt::format("has {}", name_of(as_report(end.how))));
  if (end.cause) text += ": " + in_words(*end.cause);
  tell(s, event_kind::group_over, std::move(text));
  tell_state(s);
  s.deps.listener->group_over(end.how, end.cause);
  end_gate(s);
}

void end(self_pointer self) {
  member_state& s = self->state;
  if (std::exchange(s.ended, true)) return;
  end_gate(s);
  if (s.wire) s.wire->stop();
  s.wire.reset();
  s.deps.connect = {};
  s.deps.listener->member_gone();
  self->quit();
}

struct carry_out {
  self_pointer self;
  member_state& s = self->state;

  void operator()(send_report& order) const {
    if (s.wire) s.wire->send(std::move(order.report));
  }
  void operator()(const make_communicator& order) const {
    using act = gpu_owner::communicate::act;
    s.deps.listener->communicator_ordered({act::make, order.number, order.id, s.rank->book().view().agreed});
  }
  void operator()(const abort_communicator& order) const {
    s.deps.listener->communicator_ordered({gpu_owner::communicate::act::abort, order.number, {}, 0});
  }
  void operator()(const end_rank& order) const {
    self->delayed_send(member_actor(self), rank_driver::linger, group_beat{false});
    tell_end(s, order);
  }
};

void step(self_pointer self) {
  member_state& s = self->state;
  if (!s.rank || s.ended) return;
  const steady_time now = self->clock().now();
  follow_agreement(s);
  begin_gate(s);
  move_gate(s, now);
  auto commands = s.rank->advance(now);
  follow_phase(s);
  for (member_command& c : commands) std::visit(carry_out{self}, c);
  tell_state(s);
  if (s.rank->may_go()) end(self);
}

void join(self_pointer self, const std::string& device) {
  member_state& s = self->state;
  if (s.rank) return;
  s.deps.settings.card.device = device;
  s.rank.emplace(rank_setup{s.deps.settings, s.deps.where}, 0, self->clock().now());
  s.rank->cannot_listen(s.no_address);
  if (!s.refused.empty()) s.rank->peer_refused(s.refused);
  s.wire = s.deps.connect(member_actor(self), s.orders);
  tell(s, event_kind::group_joining,
       fmt::format("rank {} of {} joins the group '{}' at {}", s.card().rank, s.card().world_size,
                   s.deps.group, s.deps.where));
  self->delayed_send(member_actor(self), s.deps.settings.look_every(), group_beat{});
  if (s.deps.gate->handed_out() > 0) s.rank->book().delivered(s.deps.gate->handed_out());
}

/// If this rank has joined, calls `what` with it and carries out what its book then requests.
template <class What>
void with_rank(self_pointer self, What what) {
  if (!self->state.rank) return;
  what(*self->state.rank);
  step(self);
}

member_actor::behavior_type behave(self_pointer self, member_deps deps) {
  self->state.deps = std::move(deps);
  const auto now = [self] { return self->clock().now(); };
  return {
      [self](const join_group& order) {
        join(self, order.device);
        step(self);
      },
      [self](const stream_described& news) {
        with_rank(self, [&](rank_driver& rank) {
          rank.book().begins_at(news.first);
          rank.book().described(news.facts);
        });
      },
      [self](const stream_delivered&) {
        with_rank(self, [](rank_driver& rank) { rank.book().stream_ended(); });
      },
      [self](const session_failed& news) {
        join(self, {});
        with_rank(self, [&](rank_driver& rank) { rank.book().fail(news.why); });
      },
      [self](const stop_group&) {
        join(self, {});
        with_rank(self, [](rank_driver& rank) { rank.stop(); });
      },
      [self](const limit_reached&) { step(self); },
      [self](const communicator_told& news) {
        with_rank(self, [&](rank_driver& rank) { rank.communicator_changed(news.state); });
      },
      [self](const snapshots_held& news) {
        with_rank(self, [&](rank_driver& rank) { rank.book().held(news.steps); });
      },
      [self, now](const orders_arrived&) {
        with_rank(self, [&](rank_driver& rank) {
          for (const auto& [sender, order] : self->state.orders->take()) rank.heard(order, now());
        });
      },
      [self](const link_made&) { with_rank(self, [](rank_driver& rank) { rank.link_made(); }); },
      [self](const link_lost& news) {
        log::debug("group", "the link to rank 0: {}", news.why);
        with_rank(self, [&](rank_driver& rank) { rank.link_lost({news.why, news.closed}); });
      },
      [self](const coordinator_ended&) {
        with_rank(self, [](rank_driver& rank) { rank.book().coordinator_gone("its process has ended"); });
      },
      [self, now](const coordinator_held&) {
        with_rank(self, [&](rank_driver& rank) { rank.book().coordinator_held(now()); });
      },
      [self](const cannot_listen& news) {
        self->state.no_address = news.why;
        with_rank(self, [&](rank_driver& rank) { rank.cannot_listen(news.why); });
      },
      [self](const peer_refused& news) {
        self->state.refused = news.who;
        with_rank(self, [&](rank_driver& rank) { rank.peer_refused(news.who); });
      },
      [self](const links_refused& news) {
        with_rank(self, [&](rank_driver& rank) { rank.refuse(news.why); });
      },
      [self, now](const leave_group&) {
        join(self, {});  // the other ranks must not wait for this one
        for (const nanoseconds wake : {rank_driver::linger, rank_driver::patience_with_answer})
          self->delayed_send(member_actor(self), wake, group_beat{false});
        with_rank(self, [&](rank_driver& rank) { rank.leave(now()); });
      },
      [self](const drop_group&) { end(self); },
      [self](const group_beat& beat) {
        member_state& s = self->state;
        if (s.ended) return;
        if (beat.again) self->delayed_send(member_actor(self), s.deps.settings.look_every(), group_beat{});
        step(self);
      },
  };
}

}  // namespace

member_actor spawn_member(actors::actor_system& system, member_deps deps) {
  return actors::spawn(system, behave, std::move(deps));
}

}  // namespace penstock::group
