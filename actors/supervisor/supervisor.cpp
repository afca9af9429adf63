#include "actors/supervisor/supervisor.hpp"

#include "actors/protocol/hello.hpp"
#include "actors/supervisor/worker_views.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/gpu_use_watch.hpp"
#include "runtime/process/oom_watch.hpp"
#include "runtime/process/process_facts.hpp"

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <csignal>
#include <map>

namespace penstock::supervisor {
namespace {

using namespace std::chrono_literals;

constexpr auto measure_every = 1s;

struct supervisor_state {
  supervisor_state() = default;
  ~supervisor_state() = default;
  supervisor_state(const supervisor_state&) = delete;
  supervisor_state& operator=(const supervisor_state&) = delete;

  supervisor_surroundings around;
  meet_others others;
  std::unique_ptr<supervision::worker_supervision> workers;  // makes all decisions
  process::oom_watch oom{process::oom_evidence_file()};
  process::gpu_use_watch gpu_users;
  std::map<std::uint32_t, worker_facts> facts;  // by place; of workers that are alive or not decided yet
  std::map<std::uint32_t, death_report> last_deaths;  // by place
  steady_time next_measure{};
  steady_time wake_at = never;  // a wake-up is scheduled for this time
  std::uint64_t ticks = 0;      // the number of the one that is scheduled
  bool closed = false;
};

using self_pointer = supervisor_actor::stateful_pointer<supervisor_state>;

steady_time now_of(self_pointer self) {
  return self->clock().now();
}

worker_facts* find(supervisor_state& s, worker_ref who) {
  const auto it = s.facts.find(who.worker);
  return it != s.facts.end() && it->second.who == who ? &it->second : nullptr;
}

// ---- publishing -------------------------------------------------------------------------------------------

void tell_changes(const supervisor_state& s, steady_time now) {
  const supervision::pool& pool = s.workers->places();
  std::vector<worker_status> all;
  for (const supervision::place_view& place : pool.places()) {
    const auto w = s.facts.find(place.worker);
    const auto died = s.last_deaths.find(place.worker);
    all.push_back(status_of(place, w != s.facts.end() && !w->second.ended ? &w->second : nullptr,
                            s.around.flights->read(place.worker),
                            died != s.last_deaths.end() ? &died->second : nullptr, now));
  }
  s.around.news->workers_changed(all, pool.degraded(), pool.started(), pool.restarts());
}

// ---- commands ---------------------------------------------------------------------------------------------

struct carry_out {
  self_pointer self;
  steady_time now = now_of(self);
  supervisor_state& s = self->state;

  void operator()(const supervision::start_worker& order) {
    s.around.flights->clear(order.who.worker);
    worker_facts fresh;
    fresh.who = order.who;
    fresh.started = now;
    s.facts[order.who.worker] = std::move(fresh);
    s.around.processes->start(order.who);
  }
  void operator()(const supervision::introduce_worker& order) {
    s.facts.at(order.who.worker)
        .link->send(protocol::open_dataset{protocol::version, order.who, s.around.settings.config,
                                           s.around.settings.pool});
  }
  void operator()(const supervision::hand_over_worker& order) {
    const auto kind = order.sacrificial ? schedule::worker_kind::sacrificial : schedule::worker_kind::loader;
    const worker_facts& w = s.facts.at(order.who.worker);
    self->send(s.others.leases, scheduler::worker_joined{order.who, s.around.settings.slots_per_worker, kind,
                                                         w.link, w.parcels});
  }
  void operator()(const supervision::retire_worker& order) {
    self->send(s.others.leases, scheduler::worker_drains{order.who, order.after_current_batch});
  }
  void operator()(const supervision::stop_worker& order) {
    s.facts.at(order.who.worker).link->send(protocol::stop_work{});
  }
  void operator()(const supervision::signal_worker& order) {
    s.around.processes->signal(order.who, order.number);
  }
  void operator()(const supervision::killing_worker& why) {
    if (!why.pid)
      return log::warn("supervisor", "giving up the start of worker {}: {}", why.who.worker, why.reason);
    log::warn("supervisor", "killing worker {} (pid {}): {}", why.who.worker, *why.pid, why.reason);
    if (why.cause != death_cause::hang && why.cause != death_cause::heartbeat) return;
    worker_facts& w = s.facts.at(why.who.worker);
    w.wait_channel = process::wait_channel(*why.pid, s.around.flights->read(why.who.worker).thread);
  }
  void operator()(const supervision::write_off_worker& lost) {
    if (lost.pid) {
      log::error("supervisor", "worker {} (pid {}) survives SIGKILL: it is stuck in the kernel ({})",
                 lost.who.worker, *lost.pid, process::wait_channel(*lost.pid));
    } else {
      log::error("supervisor",
                 "the start of worker {} survives SIGKILL: its place stays empty until it returns",
                 lost.who.worker);
    }
    worker_facts& w = s.facts.at(lost.who.worker);
    w.last_flight = s.around.flights->read(lost.who.worker);
    self->send(s.others.leases,
               scheduler::worker_written_off{lost.who, lost.blames_sample ? sample_in_hand(w) : std::nullopt,
                                             w.last_flight.sample_name, "unkillable"});
  }
  void operator()(const supervision::decide_blame& end) {
    const worker_facts& w = s.facts.at(end.who.worker);
    self->send(s.others.leases,
               scheduler::worker_ended{end.who, end.blames_sample ? sample_in_hand(w) : std::nullopt,
                                       w.last_flight.sample_name, end.cause});
  }
  void operator()(const supervision::memory_exceeded& grown) {
    log::warn("supervisor",
              "worker {} (pid {}) uses {} of private memory, [loader.limits] allows {}: replacing it after "
              "this batch",
              grown.who.worker, grown.pid, bytes_for_people(grown.bytes),
              bytes_for_people(s.around.settings.rules.memory_max_bytes));
  }
  void operator()(const supervision::gpu_use_reported& found) {
    log::warn("supervisor", "worker {}: {}", found.who.worker, found.use);
  }
  void operator()(const supervision::sacrificial_failed& lost) {
    log::warn("supervisor", "{}: quarantining the samples that wait to be tried alone", lost.reason);
    self->send(s.others.leases, scheduler::cannot_try_alone{lost.reason});
  }
  void operator()(const supervision::workers_failed& end) { s.around.news->gave_up(end.reason); }
  void operator()(const supervision::workers_closed&) {
    s.closed = true;
    s.around.news->pool_closed();
  }
};

void advance(self_pointer self) {
  supervisor_state& s = self->state;
  const steady_time now = now_of(self);
  carry_out orders{self};
  for (const supervision::worker_command& c : s.workers->advance(now)) std::visit(orders, c);
  tell_changes(s, now);
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
};

// ---- starts -----------------------------------------------------------------------------------------------

void note_start(supervisor_state& s, const worker_started& news) {
  if (worker_facts* w = find(s, news.who)) {
    w->pid = news.pid;
    w->link = news.link;
    w->parcels = news.parcels;
    log::debug("supervisor", "worker {} started (pid {})", news.who.worker, news.pid);
  }
  s.workers->started(news.who, news.pid);
}

void note_refusal(self_pointer self, const start_refused& news) {
  supervisor_state& s = self->state;
  s.workers->start_refused(news.who, now_of(self), news.why);
  if (find(s, news.who) != nullptr) s.facts.erase(news.who.worker);
}

// ---- ends -------------------------------------------------------------------------------------------------

void note_end(self_pointer self, const worker_exited& news) {
  supervisor_state& s = self->state;
  worker_facts* w = find(s, news.who);
  if (w == nullptr || w->ended) return;
  w->ended = news.report;
  w->last_lines = news.last_lines;
  w->stack = news.stack;
  w->last_flight = s.around.flights->read(news.who.worker);
  const bool oom = news.report.ended_by(SIGKILL) && s.oom.explains_death(now_of(self));
  s.workers->exited(news.who, now_of(self), news.report, oom);
}

/// The scheduler has decided which sample the death is blamed on.
void settle_death_of(self_pointer self, const scheduler::blame_decision& decision) {
  supervisor_state& s = self->state;
  const worker_facts* w = find(s, decision.who);
  const supervision::termination* ending = s.workers->ending_of(decision.who);
  if (w == nullptr || ending == nullptr || !w->ended) return;
  const death_report report = as_report(
      *w, *ending, decision, s.around.settings.pool ? blamed_work::jobs : blamed_work::samples, now_of(self));
  const std::uint64_t samples = w->last_flight.samples_done;
  const auto news = s.workers->blame_decided(decision.who, now_of(self), decision.blamed.has_value(), samples,
                                             w->last_lines);
  s.facts.erase(decision.who.worker);
  if (news.unasked) {
    log::warn("supervisor", "worker {} (pid {}) ended: {}{}", report.worker, report.pid, news.cause,
              blame_text(report));
    s.last_deaths[report.worker] = report;
  }
  if (news.worth_telling) s.around.news->worker_died(report);
}

// ---- polling ----------------------------------------------------------------------------------------------

supervision::worker_sign sign_of_start(const supervisor_state& s, const worker_facts& w) {
  supervision::worker_sign sign;
  sign.worker = w.who.worker;
  sign.work = s.around.processes->current_start();
  return sign;
}

void look(self_pointer self) {
  supervisor_state& s = self->state;
  std::vector<supervision::worker_sign> signs;
  for (const auto& [place, w] : s.facts) {
    if (!w.ended) {
      const arena::flight_reading flight = s.around.flights->read(place);
      signs.push_back(w.pid > 0 ? sign_of(w, flight, s.around.leases->of(place) > 0) : sign_of_start(s, w));
    }
  }
  s.workers->look(now_of(self), signs);
}

void measure(self_pointer self) {
  supervisor_state& s = self->state;
  const steady_time now = now_of(self);
  if (now < s.next_measure) return;
  s.next_measure = now + measure_every;
  s.oom.look(now);
  std::vector<pid_t> audited;
  for (auto& [place, w] : s.facts) {
    if (w.ended || w.pid <= 0) continue;
    const auto facts = process::look_at(w.pid);
    if (!facts) continue;
    w.rss_bytes = facts->rss_bytes;
    if (!w.gpu_use && s.workers->audits_gpu_use(w.who)) {
      w.gpu_use = gpu_use_of(s.gpu_users, w.pid);
      audited.push_back(w.pid);
    }
    if (w.gpu_use) s.workers->uses_gpu(w.who, now, *w.gpu_use);
    s.workers->measured(w.who, facts->rss_anon_bytes, s.around.flights->read(place).samples_done);
  }
  // The result is used at the next measurement, because the check may block on a hanging process.
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
  look(self);
  measure(self);
  advance(self);
  keep_ticking(self);
}

void open(self_pointer self) {
  self->state.workers->open(now_of(self));
  advance(self);
  if (self->state.ticks == 0) keep_ticking(self);
}

supervisor_actor::behavior_type behave(self_pointer self, supervisor_surroundings around) {
  supervisor_state& s = self->state;
  s.around = std::move(around);
  s.workers = std::make_unique<supervision::worker_supervision>(s.around.settings.rules);
  return {
      [self](const meet_others& others) { self->state.others = others; },
      [self](const open_pool&) { open(self); },
      [self](const close_pool& order) {
        self->state.workers->close(now_of(self), order.patience);
        advance(self);
      },
      [self](const worker_started& news) {
        note_start(self->state, news);
        advance(self);
      },
      [self](const start_refused& news) {
        note_refusal(self, news);
        advance(self);
      },
      [self](const worker_spoke& said) {
        std::visit(hear{self, said.who}, said.message);
        advance(self);
      },
      [self](const worker_lost_link& news) {
        self->state.workers->link_closed(news.who, now_of(self), news.reason);
        advance(self);
      },
      [self](const worker_exited& news) {
        note_end(self, news);
        advance(self);
      },
      [self](const partition_prepared& answer) {
        if (self->state.workers->prepared(answer.who, now_of(self), answer.slots.has_value()))
          self->state.facts.at(answer.who.worker).link->send(*answer.slots);
        advance(self);
      },
      [self](const blame_decided& decided) {
        settle_death_of(self, decided.decision);
        advance(self);
      },
      [self](const want_sacrificial& order) {
        self->state.workers->want_sacrificial(order.wanted, now_of(self));
        advance(self);
      },
      [self](const fence_worker& order) {
        self->state.workers->fence(order.who, now_of(self), order.reason);
        advance(self);
      },
      [self](const cancel_worker& order) {
        self->state.workers->cancel(order.who, now_of(self), order.at_once, order.reason);
        advance(self);
      },
      [self](const limits_in_use& news) {
        self->state.workers->expect_limit(news.shortest);
        keep_ticking(self);
      },
      [self](const worker_told_to_stop& news) {
        self->state.workers->told_to_stop(news.who, now_of(self));
        advance(self);
      },
      [](const tell_when_handled& order) { order.done->set_value(); },
      [self](const scale_pool& order) {
        self->state.workers->scale(order.workers, now_of(self));
        advance(self);
      },
      [self](const restart_worker& order) {
        self->state.workers->restart(order.worker, now_of(self));
        advance(self);
      },
      [self](const drain_worker& order) {
        self->state.workers->drain(order.worker);
        advance(self);
      },
      [self](const tick& due) { poll(self, due); },
      [self](const wake&) {
        self->state.wake_at = never;
        advance(self);
      },
  };
}

}  // namespace

supervisor_actor spawn_supervisor(caf::actor_system& system, supervisor_surroundings around) {
  return system.spawn(behave, std::move(around));
}

}  // namespace penstock::supervisor
