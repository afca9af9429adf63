#include "actors/supervisor/owner_keeper.hpp"

#include "actors/caf/caf.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/hello.hpp"
#include "actors/supervisor/owner_communicator.hpp"
#include "actors/supervisor/owner_rules.hpp"
#include "actors/supervisor/owner_uploads.hpp"
#include "actors/supervisor/sink_watch.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/fault_injection.hpp"
#include "runtime/process/oom_watch.hpp"
#include "runtime/supervision/owner_supervision.hpp"

#include <csignal>

namespace penstock::supervisor {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds look_every = owner_communicator::look_every;
constexpr std::uint64_t answers_to_communicate = 8;  // at most

struct keeper_state {
  keeper_deps deps;
  protocol::peers others;
  std::unique_ptr<supervision::owner_supervision> owner;  // makes all decisions
  process::oom_watch oom{process::oom_evidence_file()};
  std::shared_ptr<protocol::owner_link> link;
  owner_introduction introduction;
  device::identity device;      // as the last incarnation opened it
  owner_facts told;             // the latest facts published
  steady_time wake_at = never;  // a wake-up is scheduled for this time
  sink_watch sink{look_every};
  std::optional<owner_communicator> communicator;  // set if the group has one
};

using self_pointer = actors::self<owner_keeper_actor, keeper_state>;

steady_time now_of(self_pointer self) {
  return self->clock().now();
}

void tell_changes(keeper_state& s) {
  const supervision::owner_supervision& o = *s.owner;
  const owner_facts facts{state_of(o.stage()), o.pid(), o.restarts(), o.irreplaceable()};
  if (std::exchange(s.told, facts) != facts) s.deps.listener->owner_changed(facts);
}

arena::flight_reading flight_of(const keeper_state& s) {
  return s.deps.flights->read(s.deps.flight_page);
}

// ---- commands ---------------------------------------------------------------------------------------------

void follow(self_pointer self, owner_communicator::orders what);

struct carry_out {
  self_pointer self;
  keeper_state& s = self->state;

  void operator()(const supervision::start_owner_process& order) {
    s.sink.begin_owner();
    s.deps.flights->clear(s.deps.flight_page);
    s.deps.process->start(order.incarnation);
  }
  void operator()(const supervision::introduce_owner& order) {
    const std::uint64_t base = s.communicator ? s.communicator->introduced() : 0;
    for (protocol::to_owner& part :
         s.introduction.messages(order.incarnation, s.owner->orders().snapshot(), base))
      s.link->send(std::move(part));
  }
  void operator()(const supervision::send_uploads& order) {
    s.link->expect(2 * order.uploads.size());  // two reports for each: copied, delivered
    for (protocol::to_owner& part : messages_of(order.uploads)) s.link->send(std::move(part));
  }
  void operator()(const supervision::stop_owner_process& order) {
    s.link->send(protocol::stop_owner{order.whole});
  }
  void operator()(const supervision::send_signal& signal) {
    s.deps.process->signal(s.owner->incarnation(), signal.number);
  }
  void operator()(const supervision::killing_begins& why) {
    const auto pid = s.owner->pid();
    const std::string what = pid ? "killing " + owner_in_words(*pid) : "giving up on starting the GPU owner";
    log::warn("gpu", "{}: {}", what, why.reason);
  }
  void operator()(const supervision::uploads_lost& lost) {
    if (s.deps.jobs != nullptr) return s.deps.jobs->uploads_lost(loss_of_jobs(lost));
    self->send(s.others.scheduler, loss_of_batches(lost));
  }
  void operator()(const supervision::owner_is_ready& ready) {
    if (s.communicator) follow(self, s.communicator->ready());
    if (ready.first) return s.deps.listener->opened(s.device);
    s.deps.listener->reopened(s.owner->pid().value_or(0));
  }
  void operator()(const supervision::owner_recovered& again) {
    s.deps.listener->owner_recovered(again.incarnation,
                                   std::chrono::duration<double>(again.since_its_end).count());
  }
  void operator()(const supervision::owner_died& death) {
    const std::string text = death_in_words(death);
    death.unasked ? log::warn("gpu", "{}", text) : log::info("gpu", "{}", text);
    s.deps.listener->owner_died(death.report);
  }
  void operator()(const supervision::owner_left_out& batch) { log::warn("gpu", "{}", batch.text); }
  void operator()(const supervision::owner_not_started& no) {
    log::warn("gpu", "the GPU owner could not be started: {}; trying again {}", no.reason.message,
              no.again_in > nanoseconds(0) ? "in " + duration_for_people(no.again_in) : "at once");
  }
  void operator()(const supervision::owner_failed& end) { s.deps.listener->gave_up(end.reason); }
  void operator()(const supervision::owner_closed&) { s.deps.listener->owner_closed(); }
};

void advance(self_pointer self) {
  keeper_state& s = self->state;
  const steady_time now = now_of(self);
  carry_out orders{self};
  for (const supervision::owner_command& c : s.owner->advance(now)) std::visit(orders, c);
  tell_changes(s);
  const steady_time due = s.owner->next_deadline();
  if (due >= s.wake_at) return;
  s.wake_at = due;
  self->delayed_send(owner_keeper_actor(self), std::max<nanoseconds>(due - now, 0ns), wake_keeper{});
}

// ---- messages of the session ------------------------------------------------------------------------------

void prepare(keeper_state& s, const gpu_owner::prepare_device& order) {
  const protocol::prepare_owner& preparation = s.introduction.prepare(order);
  if (s.owner->hears()) s.link->send(preparation);
}

void attach(keeper_state& s, const gpu_owner::attach_partition& order) {
  s.introduction.attach(order.partition);
  if (s.owner->hears()) s.link->send(protocol::map_partition{order.partition});
}

// ---- messages of the process ------------------------------------------------------------------------------

/// Translates the messages of one incarnation into events. Messages that violate the protocol are not passed
/// on.
struct hear {
  self_pointer self;
  std::uint32_t incarnation = 0;
  keeper_state& s = self->state;
  steady_time now = now_of(self);

  void operator()(const protocol::hello& hello) {
    s.owner->greeted(incarnation, now, protocol::refusal_of(hello, "it is not a penstock GPU owner"));
  }
  void operator()(const protocol::owner_opened& what) {
    s.device = {what.kind, what.name, what.uuid.empty() ? std::nullopt : std::optional(what.uuid)};
    s.owner->opened(incarnation, now);
  }
  void operator()(const protocol::slots_copied& news) {
    auto released = released_by(news, *s.owner, incarnation, now, s.deps.times.get());
    if (!released.empty() && s.deps.jobs == nullptr)
      self->send(s.others.scheduler, scheduler::slots_released{std::move(released)});
  }
  void operator()(protocol::batches_delivered& news) {
    const auto* last =
        news.deliveries.empty() ? nullptr : s.owner->orders().find(news.deliveries.back().upload);
    if (!s.communicator || last == nullptr) return take(news);
    follow(self, s.communicator->delivered(last->position + 1, std::move(news)));
  }
  void operator()(const protocol::communicator_changed& news) {
    if (!s.communicator) return;
    if (!news.id.empty()) {
      s.communicator->drawn(news.number);
      return s.deps.listener->communicator_drawn(news.number, news.id);
    }
    follow(self, s.communicator->told(
                     {news.number, static_cast<group::communicator_state::how>(news.at), news.cause}));
  }
  void take(const protocol::batches_delivered& news) {
    const auto taken = deliveries_of(news, *s.owner, incarnation, now, s.deps.times.get());
    for (const scheduler::batch_delivered& one : taken) {
      if (s.deps.deliveries->add(one))
        self->send(s.others.scheduler, scheduler::batches_delivered{s.deps.deliveries});
    }
    if (taken.size() == news.deliveries.size()) note_counts(news.uploads, news.bytes, news.pinned);
  }
  void operator()(protocol::jobs_answered& news) {
    auto answers = answers_of(news, *s.owner, incarnation, now);
    if (s.deps.jobs != nullptr && !answers.empty()) s.deps.jobs->jobs_answered(std::move(answers));
    note_counts(news.uploads, news.bytes, news.pinned);
  }
  void operator()(const protocol::worker_gives_up& last) {
    s.owner->gave_up(incarnation, now, {static_cast<errc>(last.kind), last.reason, 0});
  }
  void operator()(const protocol::owner_irreplaceable&) { s.owner->cannot_be_replaced(incarnation); }
  void operator()(const protocol::partition_attached& news) {
    s.deps.listener->attached(
        {news.partition, news.bytes, news.pinned, nanoseconds(static_cast<std::int64_t>(news.took_ns))});
  }
  void operator()(const protocol::gpu_processes_seen& seen) {
    s.deps.listener->gpu_processes_seen(processes_in(seen));
  }

  void note_counts(std::uint64_t uploads, std::uint64_t bytes, bool pinned) const {
    s.deps.listener->progressed(uploads, bytes, pinned);
    s.sink.report_to(*s.deps.listener, flight_of(s), now);
  }
};

/// Carries out what follows from the group's orders and the process's reports.
void follow(self_pointer self, owner_communicator::orders what) {
  keeper_state& s = self->state;
  for (const protocol::batches_delivered& news : what.agreed) hear{self, s.owner->incarnation()}.take(news);
  if (what.snapshot) s.owner->keep_snapshot(std::move(*what.snapshot));
  if (what.held) s.deps.listener->snapshots_changed(*what.held);
  for (const group::communicator_state& state : what.told) s.deps.listener->communicator_changed(state);
  if (s.link && !what.send.empty()) s.link->expect(answers_to_communicate * what.send.size());
  for (protocol::wire_communicate& order : what.send) {
    if (s.link) s.link->send(std::move(order));
  }
  if (what.replace) s.owner->restart(now_of(self));
}

void note_end(self_pointer self, const owner_exited& news) {
  keeper_state& s = self->state;
  if (s.communicator && news.incarnation == s.owner->incarnation())
    follow(self, s.communicator->ended(s.owner->finishes_with(news.report)));
  const arena::flight_reading flight = flight_of(s);
  if (news.incarnation == s.owner->incarnation())
    s.sink.report_to(*s.deps.listener, flight, now_of(self), false);
  const bool oom = news.report.ended_by(SIGKILL) && s.oom.explains_death(now_of(self));
  const bool injected = s.owner->pid() && process::was_injected(*s.owner->pid(), news.report);
  s.owner->exited(news.incarnation, now_of(self), {news.report, in_hand(flight), news.last_lines, oom, s.oom.counts(), injected});
  if (!s.owner->has_process()) s.link.reset();
}

// ---- polling ----------------------------------------------------------------------------------------------

void look(self_pointer self) {
  keeper_state& s = self->state;
  const steady_time now = now_of(self);
  s.oom.look(now);
  if (const auto pid = s.owner->pid()) {
    const arena::flight_reading flight = flight_of(s);
    const steady_time since = s.sink.unchanged_since(flight, now);
    if (const auto mark = in_hand(flight))
      note_taken(s.deps.times.get(), s.owner->orders().find_by_mark(*mark), since);
    s.sink.report_to(*s.deps.listener, flight, now);
    s.owner->look(now, sign_of(*pid, flight));
  } else {
    s.owner->look(now, {0, 0, std::nullopt, false, s.deps.process->current_start()});
  }
  if (s.communicator) follow(self, s.communicator->look(now));
  advance(self);
  if (s.link) s.link->expect(1);  // the process sends NVML's list unasked, less often than this
}

void keep_looking(self_pointer self) {
  const config& settings = self->state.deps.settings;
  const nanoseconds pause =
      std::min<nanoseconds>(look_every, rules_of(settings, self->state.deps.jobs != nullptr).clocks.tick());
  self->delayed_send(owner_keeper_actor(self), pause, keeper_tick{});
}

void set_up(keeper_state& s, keeper_deps deps, steady_time now) {
  s.deps = std::move(deps);
  if (s.deps.settings.group.communicator != communicator_kind::none)
    s.communicator.emplace(s.deps.settings.group.abort_timeout);
  s.introduction = owner_introduction({.flight_page = s.deps.flight_page,
                                       .config = protocol::config_as_bytes(s.deps.settings),
                                       .sink = s.deps.sink,
                                       .out = s.deps.out,
                                       .digests = s.deps.digests,
                                       .snapshot = {},
                                       .pool = s.deps.jobs != nullptr});
  s.owner = std::make_unique<supervision::owner_supervision>(
      rules_of(s.deps.settings, s.deps.jobs != nullptr), now);
}

/// Calls change(state, message, now), then carries out what the supervision decides.
template <class Message, class Change>
auto on(self_pointer self, Change change) {
  return [self, change](const Message& message) {
    change(self->state, message, now_of(self));
    advance(self);
  };
}

owner_keeper_actor::behavior_type behave(self_pointer self, keeper_deps deps) {
  set_up(self->state, std::move(deps), now_of(self));
  return {
      [self](const gpu_owner::open_device&) {
        self->state.owner->open(now_of(self));
        advance(self);
        keep_looking(self);
      },
      [self](const gpu_owner::prepare_device& order) { prepare(self->state, order); },
      [self](const gpu_owner::attach_partition& order) { attach(self->state, order); },
      [self](gpu_owner::upload_batches& more) {
        for (upload_order& o : more.orders) self->state.owner->order(std::move(o));
        advance(self);
      },
      [](const gpu_owner::buffers_released&) {},
      [self](const gpu_owner::close_device& order) {
        if (order.leave) {
          self->state.others = {};
          return self->quit();
        }
        self->state.owner->close(now_of(self), order.whole, order.at_most);
        advance(self);
      },
      [self](const gpu_owner::communicate& order) {
        if (auto& c = self->state.communicator) follow(self, c->ordered(order, now_of(self)));
        advance(self);
      },
      [self](const protocol::meet& all) { self->state.others = all.others; },
      [self](const owner_started& news) {
        self->state.link = news.link;
        self->state.owner->started(news.incarnation, news.pid);
        advance(self);
      },
      on<owner_refused>(
          self, [](auto& s, auto& no, auto now) { s.owner->start_failed(no.incarnation, now, no.why); }),
      [self](owner_spoke& said) {
        std::visit(hear{self, said.incarnation}, said.message);
        advance(self);
      },
      on<owner_lost_link>(self, [](auto& s, auto& lost,
                                   auto now) { s.owner->link_closed(lost.incarnation, now, lost.reason); }),
      [self](const owner_exited& news) {
        note_end(self, news);
        advance(self);
      },
      on<restart_owner>(self, [](auto& s, auto&, auto now) { s.owner->restart(now); }),
      [self](const keeper_tick&) {
        look(self);
        keep_looking(self);
      },
      on<wake_keeper>(self, [](auto& s, auto&, auto) { s.wake_at = never; }),
  };
}

}  // namespace

owner_keeper_actor spawn_owner_keeper(actors::actor_system& system, keeper_deps deps) {
  return actors::spawn(system, behave, std::move(deps));
}

}  // namespace penstock::supervisor
