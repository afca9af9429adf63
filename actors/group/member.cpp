#include "actors/group/member.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <fmt/format.h>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;

// The last report has left by then.
constexpr auto linger = 100ms;
// For an answer to the last report of a rank that the others do not wait for.
constexpr auto patience_with_answer = 2s;

struct member_state {
  member_state() = default;
  ~member_state() = default;
  member_state(const member_state&) = delete;
  member_state& operator=(const member_state&) = delete;

  member_surroundings around;
  std::shared_ptr<newest_order> orders = std::make_shared<newest_order>();
  std::shared_ptr<member_wire> wire;
  std::optional<member_book> book;  // from the first word on
  group_order heard;                // the newest order
  std::string link_trouble;         // why there is no link
  bool linked = false;
  std::uint64_t last_report = 0;
  std::optional<std::uint64_t> all_delivered;  // the number of the report that says so
  bool delivered = false;
  bool failed = false;
  std::optional<steady_time> leaving_since;
  bool open = false;  // the gate, as it was told last
  std::optional<std::uint64_t> limit;
  group_phase phase = group_phase::gathering;
  bool joined = false;
  std::optional<group_outcome> outcome;
  std::optional<group_cause> cause;
  std::uint64_t agreed = 0;  // as the owner was told last
  bool ended = false;
};

using self_pointer = member_actor::stateful_pointer<member_state>;

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

const char* name_of(group_outcome how) {
  switch (how) {
    case group_outcome::finished: return "finished";
    case group_outcome::stopped: return "stopped";
    case group_outcome::failed: return "failed";
    case group_outcome::none: break;
  }
  return "";
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string waits_for(const member_state& s) {
  if (s.outcome || !s.book || (s.open && !s.delivered)) return {};
  if (!s.linked)
    return fmt::format("rank 0 at {}{}", s.around.where, s.link_trouble.empty() ? "" : ": " + s.link_trouble);
  // Later a rank that is not there has finished.
  if (!s.joined && !s.heard.lost.empty()) return ranks_text(s.heard.lost) + " to arrive";
  switch (s.phase) {
    case group_phase::gathering: return "an answer of rank 0";
    case group_phase::describing: return "the other ranks to describe their datasets";
    case group_phase::stopping: return "all ranks to reach the step at which they stop";
    case group_phase::running: return s.delivered ? "the other ranks to finish" : std::string();
    case group_phase::over: break;
  }
  return {};
}

void tell_state(const member_state& s) {
  group_status now;
  now.group = s.around.group;
  now.rank = s.around.settings.card.rank;
  now.world_size = s.around.settings.card.world_size;
  now.phase = s.outcome ? "over" : name_of(s.phase);
  now.waits_for = waits_for(s);
  if (!s.joined || s.around.settings.waits_for_lost) now.missing = s.heard.lost;
  now.steps = s.around.gate->handed_out();
  if (s.book) {
    now.generation = s.book->view().generation;
    now.stop_at = s.book->view().limit;
  }
  if (s.outcome) now.outcome = name_of(*s.outcome);
  if (s.cause)
    now.first_cause = group_cause_report{s.cause->rank, s.cause->host, s.cause->pid, s.cause->cause};
  s.around.news->group_changed(now);
}

void tell(const member_state& s, event_kind what, std::string text) {
  log::info("group", "{}", text);
  s.around.news->group_event(what, std::move(text));
}

/// What the group has agreed on since the last look.
void follow_phase(member_state& s) {
  const group_view& view = s.book->view();
  const group_phase was = std::exchange(s.phase, view.phase);
  const bool alone = s.book->delivers_the_rest();
  const bool agreed = alone || view.phase == group_phase::describing || view.phase == group_phase::running ||
                      view.phase == group_phase::stopping;
  if (agreed && !std::exchange(s.joined, true)) {
    tell(s, event_kind::group_joined,
         alone ? fmt::format("the group '{}' has finished: rank {} delivers the rest by itself",
                             s.around.group, s.around.settings.card.rank)
               : fmt::format("rank {} has joined the group '{}' of {}", s.around.settings.card.rank,
                             s.around.group, counted(s.around.settings.card.world_size, "rank")));
    s.around.news->joined();
  }
  if (alone) s.around.gate->begin();
  if (was == view.phase) return;
  if (view.phase == group_phase::running || view.phase == group_phase::stopping) s.around.gate->begin();
  if (view.phase == group_phase::running) {
    tell(s, event_kind::group_running,
         "all ranks have described the same dataset: batches may be handed out");
    s.around.news->gate_moved();
  }
  if (view.phase == group_phase::stopping)
    tell(s, event_kind::group_stopping, "all ranks stop at the same step");
}

/// Before anything else of the same order: a communicator is made for what follows the agreed step.
void follow_agreement(member_state& s) {
  const std::uint64_t agreed = s.book->view().agreed;
  if (!s.around.settings.communicator || agreed <= s.agreed) return;
  s.agreed = agreed;
  s.around.news->communicator_ordered({gpu_owner::communicate::act::agreed, 0, {}, agreed});
}

/// The right to hand out batches goes to the gate, and the count of those handed out comes back, in one step: what a
/// frozen rank reports is exact.
void move_gate(member_state& s, steady_time now) {
  const auto right = s.book->right();
  const bool open = right && now < right->until;
  const auto limit = right ? right->limit : std::nullopt;
  s.book->delivered(right ? s.around.gate->open(right->until, right->limit) : s.around.gate->shut());
  const bool moved = (open && !s.open) || (open && limit != s.limit);
  s.open = open;
  if (right) s.limit = limit;
  if (moved) s.around.news->gate_moved();
}

void tell_end(member_state& s, group_outcome how, const std::optional<group_cause>& cause) {
  if (s.outcome) return;
  s.outcome = how;
  s.cause = cause;
  if (s.around.settings.communicator)
    s.around.news->communicator_ordered({gpu_owner::communicate::act::free, 0, {}, 0});
  // Who waits at the gate has to find the failure before its end.
  if (how != group_outcome::failed) s.around.gate->end();
  std::string text = fmt::format(
      "the group '{}' {}", s.around.group,
      how == group_outcome::none ? "goes on without this rank" : fmt::format("has {}", name_of(how)));
  if (how == group_outcome::stopped) text = fmt::format("the group '{}' was stopped", s.around.group);
  if (cause) text += ": " + in_words(*cause);
  tell(s, event_kind::group_over, std::move(text));
  tell_state(s);
  s.around.news->group_over(how, cause);
  s.around.gate->end();
}

void end(self_pointer self) {
  member_state& s = self->state;
  if (std::exchange(s.ended, true)) return;
  s.around.gate->end();
  if (s.wire) s.wire->stop();
  s.wire.reset();
  s.around.connect = {};
  s.around.news->member_gone();
  self->quit();
}

struct carry_out {
  self_pointer self;
  member_state& s = self->state;

  void operator()(send_report& order) {
    s.last_report = order.report.number;
    if (order.report.stream_over && !s.all_delivered) s.all_delivered = s.last_report;
    if (s.wire) s.wire->send(std::move(order.report));
  }
  void operator()(const make_communicator& order) const {
    using act = gpu_owner::communicate::act;
    s.around.news->communicator_ordered({act::make, order.number, order.id, s.book->view().agreed});
  }
  void operator()(const abort_communicator& order) const {
    s.around.news->communicator_ordered({gpu_owner::communicate::act::abort, order.number, {}, 0});
  }
  void operator()(const end_rank& order) const { tell_end(s, order.how, order.cause); }
};

/// Nobody has to hear anything more of this rank.
bool may_go(const member_state& s, steady_time now) {
  if (s.outcome) return now - *s.leaving_since >= linger;
  // A new process of rank 0 would look for it, if ranks may be replaced: then all stay until the end.
  if (s.all_delivered && !s.around.settings.waits_for_lost)
    return s.heard.heard >= *s.all_delivered || now - *s.leaving_since >= patience_with_answer;
  return false;
}

void step(self_pointer self) {
  member_state& s = self->state;
  if (!s.book || s.ended) return;
  const steady_time now = self->clock().now();
  follow_phase(s);
  follow_agreement(s);
  move_gate(s, now);
  for (member_command& c : s.book->advance(now)) std::visit(carry_out{self}, c);
  tell_state(s);
  if (s.leaving_since && may_go(s, now)) end(self);
}

void join(self_pointer self, const std::string& device) {
  member_state& s = self->state;
  if (s.book) return;
  s.around.settings.card.device = device;
  s.book.emplace(s.around.settings, 0, self->clock().now());
  s.wire = s.around.connect(member_actor(self), s.orders);
  tell(s, event_kind::group_joining,
       fmt::format("rank {} of {} joins the group '{}' at {}", s.around.settings.card.rank,
                   s.around.settings.card.world_size, s.around.group, s.around.where));
  self->delayed_send(member_actor(self), s.around.settings.beat() / 2, group_beat{});
  if (s.around.gate->handed_out() > 0) s.book->delivered(s.around.gate->handed_out());
}

void take_orders(self_pointer self) {
  member_state& s = self->state;
  for (auto& [sender, order] : s.orders->take()) {
    s.linked = true;
    s.book->heard(order, self->clock().now());
    s.heard = std::move(order);
  }
}

void leave(self_pointer self) {
  member_state& s = self->state;
  if (s.leaving_since) return;
  join(self, {});  // the others must not wait for it
  s.leaving_since = self->clock().now();
  // What failed waits for the group's end instead: until then nobody else knows why.
  if (!s.delivered && !s.failed && !s.outcome) s.book->leave();
  for (const auto wake : {nanoseconds(linger), nanoseconds(patience_with_answer)})
    self->delayed_send(member_actor(self), wake, group_beat{false});
}

void stop(member_state& s) {
  s.book->want_stop();
  if (!s.linked && !s.failed) s.book->leave();  // there is nobody to agree with
}

void refuse_links(self_pointer self, const failure& why) {
  member_state& s = self->state;
  if (s.outcome) return;
  // Nobody can be told.
  const rank_card& own = s.around.settings.card;
  tell_end(s, group_outcome::failed, group_cause{own.rank, own.host, own.pid, why.message});
}

void take_state(member_book& book, const communicator_state& state) {
  if (state.at == communicator_state::how::made) book.communicator_made(state.number);
  if (state.at == communicator_state::how::broken) book.communicator_broken(state.number, state.cause);
  if (state.at == communicator_state::how::aborted) book.communicator_aborted(state.number);
}

member_actor::behavior_type behave(self_pointer self, member_surroundings around) {
  self->state.around = std::move(around);
  return {
      [self](const join_group& order) {
        join(self, order.device);
        step(self);
      },
      [self](const stream_described& news) {
        if (self->state.book) {
          self->state.book->begins_at(news.first);
          self->state.book->described(news.facts);
        }
        step(self);
      },
      [self](const stream_delivered&) {
        member_state& s = self->state;
        s.delivered = true;
        if (s.book) s.book->stream_ended();
        step(self);
      },
      [self](const session_failed& news) {
        join(self, {});
        self->state.failed = true;
        self->state.book->fail(news.why);
        step(self);
      },
      [self](const stop_group&) {
        join(self, {});
        stop(self->state);
        step(self);
      },
      [self](const limit_reached&) { step(self); },
      [self](const communicator_told& news) {
        if (self->state.book) take_state(*self->state.book, news.state);
        step(self);
      },
      [self](const snapshots_held& news) {
        if (self->state.book) self->state.book->held(news.steps);
        step(self);
      },
      [self](const orders_arrived&) {
        if (!self->state.book) return;
        take_orders(self);
        step(self);
      },
      [self](const link_made&) {
        self->state.linked = true;
        step(self);
      },
      [self](const link_lost& news) {
        self->state.linked = false;
        self->state.link_trouble = news.why;
        if (self->state.book) self->state.book->report_again();
        log::debug("group", "the link to rank 0: {}", news.why);
        step(self);
      },
      [self](const coordinator_ended&) {
        if (self->state.book) self->state.book->coordinator_gone("its process has ended");
        step(self);
      },
      [self](const links_refused& news) {
        refuse_links(self, news.why);
        step(self);
      },
      [self](const leave_group&) {
        leave(self);
        step(self);
      },
      [self](const drop_group&) { end(self); },
      [self](const group_beat& beat) {
        if (self->state.ended) return;
        if (beat.again)
          self->delayed_send(member_actor(self), self->state.around.settings.beat() / 2, group_beat{});
        step(self);
      },
  };
}

}  // namespace

member_actor spawn_member(caf::actor_system& system, member_surroundings around) {
  return system.spawn(behave, std::move(around));
}

}  // namespace penstock::group
