#include "actors/supervisor/supervisor.hpp"

#include "actors/caf/caf.hpp"
#include "actors/protocol/hello.hpp"
#include "actors/supervisor/worker_views.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/memory_words.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/fault_injection.hpp"
#include "runtime/process/gpu_use_watch.hpp"
#include "runtime/process/oom_watch.hpp"
#include "runtime/process/process_facts.hpp"

#include <csignal>

namespace penstock::supervisor {
namespace {

using namespace std::chrono_literals;

constexpr auto measure_every = 1s;

struct supervisor_state {
  supervisor_state() = default;
  ~supervisor_state() = default;
  supervisor_state(const supervisor_state&) = delete;
  supervisor_state& operator=(const supervisor_state&) = delete;

  supervisor_deps deps;
  meet_others others;
  std::unique_ptr<supervision::worker_supervision> workers;  // makes all decisions
  process::oom_watch oom{process::oom_evidence_file()};
  process::gpu_use_watch gpu_users;
  worker_records records;
  steady_time next_measure{};
  steady_time wake_at = never;  // a wake-up is scheduled for this time
  std::uint64_t ticks = 0;      // the number of the scheduled tick
  bool closed = false;
};

using self_pointer = actors::self<supervisor_actor, supervisor_state>;

steady_time now_of(self_pointer self) {
  return self->clock().now();
}

// ---- commands ---------------------------------------------------------------------------------------------

struct carry_out {
  self_pointer self;
  steady_time now = now_of(self);
  supervisor_state& s = self->state;

  void operator()(const supervision::start_worker& order) {
    s.deps.flights->clear(order.who.worker);
    s.records.begin(order.who, now);
    s.deps.processes->start(order.who);
  }
  void operator()(const supervision::introduce_worker& order) {
    s.records.at(order.who).link->send(protocol::open_dataset{
        protocol::version, order.who, s.deps.settings.config, s.deps.settings.work != work_kind::samples});
  }
  void operator()(const supervision::hand_over_worker& order) {
    const auto kind = order.sacrificial ? schedule::worker_kind::sacrificial : schedule::worker_kind::loader;
    const worker_facts& w = s.records.at(order.who);
    const auto slots = w.host ? std::min(w.slots, s.deps.settings.landing_slots) : w.slots;
    self->send(s.others.leases, scheduler::worker_joined{order.who, slots, kind, w.link, w.parcels, w.host});
  }
  void operator()(const supervision::retire_worker& order) {
    self->send(s.others.leases, scheduler::worker_drains{order.who, order.after_current_batch});
  }
  void operator()(const supervision::stop_worker& order) {
    s.records.at(order.who).link->send(protocol::stop_work{});
  }
  void operator()(const supervision::signal_worker& order) {
    s.deps.processes->signal(order.who, order.number);
  }
  void operator()(const supervision::killing_worker& why) {
    if (!why.pid)
      return log::warn("supervisor", "giving up on starting worker {}: {}", why.who.worker, why.reason);
    const bool of_a_job = why.cause == death_cause::hang && s.deps.settings.work == work_kind::jobs && has_work(s.deps.flights->read(why.who.worker));
    log::write(of_a_job ? log::level::debug : log::level::warn, "supervisor",
               fmt::format("killing worker {} (pid {}): {}", why.who.worker, *why.pid, why.reason));
    if (why.cause != death_cause::hang && why.cause != death_cause::heartbeat) return;
    worker_facts& w = s.records.at(why.who);
    if (w.host) return;
    w.wait_channel = process::wait_channel(*why.pid, s.deps.flights->read(why.who.worker).thread);
  }
  void operator()(const supervision::write_off_worker& lost) {
    if (lost.pid) {
      log::error("supervisor", "worker {} (pid {}) survives SIGKILL: it is stuck in the kernel ({})",
                 lost.who.worker, *lost.pid, process::wait_channel(*lost.pid));
    } else {
      log::error("supervisor",
                 "the start of worker {} survives SIGKILL: the worker's place stays empty until the start returns",
                 lost.who.worker);
    }
    worker_facts& w = s.records.at(lost.who);
    w.last_flight = s.deps.flights->read(lost.who.worker);
    self->send(s.others.leases,
               scheduler::worker_written_off{lost.who, lost.blames_sample ? sample_in_hand(w) : std::nullopt,
                                             work_in_hand(w, s.deps.settings.work), "unkillable", lost.took_too_long});
  }
  void operator()(const supervision::decide_blame& end) {
    const worker_facts& w = s.records.at(end.who);
    self->send(s.others.leases,
               scheduler::worker_ended{end.who, end.blames_sample ? sample_in_hand(w) : std::nullopt,
                                       work_in_hand(w, s.deps.settings.work),
                                       cause_with_sender(end.cause, sender_in(!w.sent_signal.empty(), w.sent_signal)), end.host_lost,
                                       end.took_too_long, sample_in_hand(w)});
  }
  void operator()(const supervision::memory_exceeded& grown) {
    const auto& over = s.records.at(grown.who).over_memory.emplace(
        excess_of(s.deps.flights->read(grown.who.worker), grown.bytes, s.deps.settings.rules.memory_max_bytes));
    log::warn("supervisor", "worker {} (pid {}) {}", grown.who.worker, grown.pid, excess_in_words(over, s.deps.settings.work));
  }
  void operator()(const supervision::gpu_use_reported& found) {
    log::warn("supervisor", "worker {}: {}", found.who.worker, found.use);
  }
  void operator()(const supervision::sacrificial_failed& lost) {
    log::warn("supervisor", "{}: quarantining the samples that wait to be tried alone", lost.reason);
    self->send(s.others.leases, scheduler::cannot_try_alone{lost.reason});
  }
  void operator()(const supervision::workers_failed& end) { s.deps.listener->gave_up(end.reason); }
  void operator()(const supervision::workers_closed&) {
    s.closed = true;
    s.deps.listener->pool_closed();
  }
};

void advance(self_pointer self) {
  supervisor_state& s = self->state;
  const steady_time now = now_of(self);
  carry_out orders{self};
  for (const supervision::worker_command& c : s.workers->advance(now)) std::visit(orders, c);
  const supervision::pool& places = s.workers->places();
  s.deps.listener->workers_changed(s.records.statuses(places, *s.deps.flights, now), places.degraded(),
                                 places.started(), places.restarts());
  const steady_time due = s.workers->next_deadline();
  if (due >= s.wake_at) return;
  s.wake_at = due;
  self->delayed_send(supervisor_actor(self), std::max<nanoseconds>(due - now, 0ns), wake{});
}

// ---- messages of a worker ---------------------------------------------------------------------------------

struct hear {
  self_pointer self;
  worker_ref who;
  supervisor_state& s = self->state;
  steady_time now = now_of(self);

  void operator()(const protocol::hello& hello) {
    s.workers->greeted(who, now, protocol::refusal_of(hello, "it is not a penstock worker program"));
  }
  void operator()(const protocol::dataset_described& dataset) {
    if (s.workers->described(who, now)) self->send(s.others.host, session::worker_described{who, dataset});
  }
  void operator()(const protocol::functions_described& served) {
    if (s.workers->described(who, now)) self->send(s.others.host, session::worker_serves{who, served.names});
  }
  void operator()(const protocol::worker_ready&) { s.workers->ready(who, now); }
  void operator()(const protocol::worker_gives_up& last) {
    s.workers->gave_up(who, now, {static_cast<errc>(last.kind), last.reason, 0});
  }
  void operator()(const protocol::batch_loaded&) { s.workers->out_of_turn(who, now, "batch_loaded"); }
  void operator()(const protocol::jobs_done&) { s.workers->out_of_turn(who, now, "jobs_done"); }
  void operator()(const protocol::samples_named&) { s.workers->out_of_turn(who, now, "samples_named"); }
};

// ---- starts -----------------------------------------------------------------------------------------------

void note_start(supervisor_state& s, const worker_started& news, steady_time now) {
  if (worker_facts* w = s.records.find(news.who)) {
    w->pid = news.pid;
    w->started = now;  // the template may have taken long before it forked
    w->host = news.host;
    w->link = news.link;
    w->parcels = news.parcels;
    log::debug("supervisor", "worker {} started (pid {})", news.who.worker, news.pid);
  }
  s.workers->started(news.who, news.pid);
}

void note_refusal(supervisor_state& s, const start_refused& news, steady_time now) {
  s.workers->start_refused(news.who, now, news.why);
  s.records.erase(news.who);
}

void note_memory(supervisor_state& s, const partition_prepared& answer, steady_time now) {
  if (!s.workers->prepared(answer.who, now, answer.slots.has_value())) return;
  worker_facts& w = s.records.at(answer.who);
  w.slots = answer.slots->slots;
  w.link->send(*answer.slots);
}

// ---- ends -------------------------------------------------------------------------------------------------

void note_end(supervisor_state& s, const worker_exited& news, steady_time now) {
  worker_facts* w = s.records.find(news.who);
  if (w == nullptr || w->ended) return;
  w->ended = news.report;
  w->last_lines = news.last_lines;
  w->stack = news.stack;
  w->last_flight = s.deps.flights->read(news.who.worker);
  const bool oom = news.report.ended_by(SIGKILL) && s.oom.explains_death(now);
  s.workers->exited(news.who, now, news.report, oom);
  const auto* const ending = s.workers->ending_of(news.who);
  if (ending == nullptr || w->host) return;
  w->sent_signal = ending->why_signalled(news.report, {process::was_injected(w->pid, news.report), news.sender, s.oom.counts()});
}

/// Completes a death when the scheduler has decided which sample it is blamed on.
void settle_death_of(supervisor_state& s, const scheduler::blame_decision& decision, steady_time now) {
  const worker_facts* w = s.records.find(decision.who);
  const supervision::termination* ending = s.workers->ending_of(decision.who);
  if (w == nullptr || ending == nullptr || !w->ended) return;
  const death_report report = as_report(*w, *ending, decision, s.deps.settings.work, now);
  const auto news = s.workers->blame_decided(decision.who, now, decision.blamed.has_value(), w->last_flight.samples_done, w->last_lines,
                                             preparation_text(report.phase, s.deps.settings.work));
  s.records.erase(decision.who);
  if (news.unasked || news.ignored_stop) {
    const bool detail = news.unasked ? is_told_as_job(report, s.deps.settings.work, s.deps.settings.jobs_are_told)
                                     : *news.ignored_stop < supervision::hurried_stop;
    const bool alone = report.worker == s.deps.settings.rules.pool.sacrificial_place;  // the sacrificial worker is not always replaced
    log::write(detail ? log::level::debug : log::level::warn, "supervisor", death_text(report, s.deps.settings.work) +
               next_text(report, alone ? supervision::place_view{report.worker} : s.workers->places().place_of(report.worker), now));
    s.records.note_death(report);
  }
  if (news.worth_telling) s.deps.listener->worker_died(report);
}

// ---- polling ----------------------------------------------------------------------------------------------

void measure(self_pointer self) {
  supervisor_state& s = self->state;
  const steady_time now = now_of(self);
  if (now < s.next_measure) return;
  s.next_measure = now + measure_every;
  s.oom.look(now);
  std::vector<pid_t> audited;
  for (auto& [place, w] : s.records.all()) {
    if (w.ended || w.pid <= 0) continue;
    if (w.host) {
      const arena::flight_reading flight = s.deps.flights->read(place);
      w.used_at_most(s.workers->measured(w.who, flight.rss_bytes, flight.samples_done));
      continue;
    }
    const auto facts = process::look_at(w.pid);
    if (!facts) continue;
    w.rss_bytes = facts->rss_bytes;
    if (!w.gpu_use && s.workers->audits_gpu_use(w.who)) {
      w.gpu_use = gpu_use_of(s.gpu_users, w.pid);
      audited.push_back(w.pid);
    }
    if (w.gpu_use) s.workers->uses_gpu(w.who, now, *w.gpu_use);
    w.used_at_most(s.workers->measured(w.who, facts->rss_anon_bytes, s.deps.flights->read(place).samples_done));
  }
  // The result is used at the next measurement, because the check may block on a hung process.
  if (!audited.empty()) s.gpu_users.look(std::move(audited));
}

void keep_ticking(self_pointer self) {
  if (self->state.closed) return;
  // A shorter interval takes effect at once; the tick already scheduled is then ignored by its number.
  const std::uint64_t number = ++self->state.ticks;
  self->delayed_send(supervisor_actor(self), self->state.workers->tick(), tick{number});
}

void poll(self_pointer self, const tick& due) {
  if (due.number != self->state.ticks) return;
  supervisor_state& s = self->state;
  s.workers->look(now_of(self),
                  s.records.signs(*s.deps.flights, *s.deps.leases, s.deps.processes->current_start(), now_of(self), s.deps.settings.work));
  measure(self);
  advance(self);
  keep_ticking(self);
}

void open(self_pointer self) {
  self->state.workers->open(now_of(self));
  advance(self);
  if (self->state.ticks == 0) keep_ticking(self);
}

/// Calls change(state, message, now), then carries out what the supervision decides.
template <class Message, class Change>
auto on(self_pointer self, Change change) {
  return [self, change](const Message& message) {
    change(self->state, message, now_of(self));
    advance(self);
  };
}

supervisor_actor::behavior_type behave(self_pointer self, supervisor_deps deps) {
  self->state.deps = std::move(deps);
  self->state.workers = std::make_unique<supervision::worker_supervision>(self->state.deps.settings.rules);
  return {
      [self](const meet_others& others) { self->state.others = others; },
      [self](const open_pool&) { open(self); },
      on<close_pool>(self, [](auto& s, auto& order, auto now) { s.workers->close(now, order.patience); }),
      on<worker_started>(self, note_start),
      on<start_refused>(self, note_refusal),
      on<worker_spoke>(self,
                       [self](auto&, auto& said, auto) {
                         std::visit(hear{self, said.who}, said.message);
                       }),
      on<worker_lost_link>(
          self, [](auto& s, auto& news, auto now) { s.workers->link_closed(news.who, now, news.reason); }),
      on<worker_exited>(self, note_end),
      on<partition_prepared>(self, note_memory),
      on<blame_decided>(self,
                        [](auto& s, auto& decided, auto now) { settle_death_of(s, decided.decision, now); }),
      on<want_sacrificial>(
          self, [](auto& s, auto& order, auto now) { s.workers->want_sacrificial(order.wanted, now); }),
      on<fence_worker>(
          self, [](auto& s, auto& order, auto now) { s.workers->fence(order.who, now, order.reason); }),
      on<cancel_worker>(self,
                        [](auto& s, auto& order, auto now) {
                          s.workers->cancel(order.who, now, order.at_once, order.reason);
                        }),
      [self](const limits_in_use& news) {
        self->state.workers->expect_limit(news.shortest);
        keep_ticking(self);
      },
      on<worker_told_to_stop>(self,
                              [](auto& s, auto& news, auto now) { s.workers->told_to_stop(news.who, now); }),
      [](const when_handled& order) { order.call(); },
      on<scale_pool>(self, [](auto& s, auto& order, auto now) { s.workers->scale(order.workers, now); }),
      on<host_place_joined>(self, [](auto& s, auto& news, auto now) { s.workers->host_joined(news.worker, now); }),
      on<host_place_left>(self, [](auto& s, auto& news, auto) {
        news.rests ? s.workers->host_rests(news.worker) : s.workers->host_left(news.worker, news.lost);
      }),
      on<host_refused>(self, [](auto& s, auto& news, auto) { s.workers->host_refused(news.why); }),
      on<restart_worker>(self, [](auto& s, auto& order, auto now) { s.workers->restart(order.worker, now, order.at_once); }),
      on<drain_worker>(self, [](auto& s, auto& order, auto) { s.workers->drain(order.worker); }),
      [self](const tick& due) { poll(self, due); },
      on<wake>(self, [](auto& s, auto&, auto) { s.wake_at = never; }),
  };
}

}  // namespace

supervisor_actor spawn_supervisor(actors::actor_system& system, supervisor_deps deps) {
  return actors::spawn(system, behave, std::move(deps));
}

}  // namespace penstock::supervisor
