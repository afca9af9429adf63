#include "actors/supervisor/supervisor.hpp"

#include "actors/supervisor/death_record.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
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

constexpr auto kill_after_abort = 2s;       // SIGABRT first: its handler may tell where the worker hangs
constexpr auto unkillable_after = 5s;       // SIGKILL and still there: an uninterruptible system call
constexpr auto goodbye_deadline = 10s;      // of one that is drained
constexpr auto lost_link_deadline = 250ms;  // a worker that ends closes its link a moment before
constexpr auto memory_look_every = 1s;

// A kill_at in the past: SIGKILL was sent and is not sent again.
constexpr steady_time sentence_carried_out = steady_time::max() - 1ns;

struct supervisor_state {
  supervisor_state() = default;
  ~supervisor_state() = default;
  supervisor_state(const supervisor_state&) = delete;
  supervisor_state& operator=(const supervisor_state&) = delete;

  supervisor_surroundings around;
  std::unique_ptr<supervision::pool> pool;
  std::unique_ptr<supervision::hang_detector> hangs;
  process::oom_watch oom{process::oom_evidence_file()};
  std::map<std::uint32_t, child> children;            // by place; only living or unjudged ones
  std::map<std::uint32_t, death_report> last_deaths;  // by place
  steady_time next_memory_look{};
  steady_time wake_at = never;  // a wake message is on its way for this time
  bool closing = false;
  bool closed_told = false;
  bool ticking = false;
};

using self_pointer = supervisor_actor::stateful_pointer<supervisor_state>;

steady_time now_of(self_pointer self) {
  return self->clock().now();
}

child* find(supervisor_state& s, worker_ref who) {
  const auto it = s.children.find(who.worker);
  return it != s.children.end() && it->second.who == who ? &it->second : nullptr;
}

// ---- telling ----------------------------------------------------------------------------------------------

void tell_changes(supervisor_state& s, steady_time now) {
  std::vector<worker_status> all;
  for (const supervision::place_view& place : s.pool->places()) {
    worker_status w;
    w.id = place.worker;
    w.incarnation = place.incarnation;
    w.restarts = place.restarts;
    w.state = std::string(supervision::name_of(place.state));
    if (place.next_restart != never && place.state == supervision::child_state::backoff) {
      w.next_restart_seconds = std::max(0.0, std::chrono::duration<double>(place.next_restart - now).count());
    }
    const auto living = s.children.find(place.worker);
    if (living != s.children.end() && !living->second.ended) {
      const child& c = living->second;
      const arena::flight_reading flight = s.around.flights->read(place.worker);
      if (c.pid > 0) w.pid = c.pid;  // else it is being started
      w.samples = flight.samples_done;
      w.rss_bytes = flight.rss_bytes > 0 ? flight.rss_bytes : c.rss_bytes;
      w.gpu_use = c.gpu_user;
      if (!flight.sample_name.empty()) w.current_sample = printable(flight.sample_name);
    }
    const auto died = s.last_deaths.find(place.worker);
    if (died != s.last_deaths.end()) w.last_death = died->second;
    all.push_back(std::move(w));
  }
  s.around.news.changed(all, s.pool->degraded(), s.pool->started(), s.pool->restarts());
}

// ---- killing ----------------------------------------------------------------------------------------------

void condemn(supervisor_state& s, child& c, death_cause cause, std::string why, steady_time now,
             bool ask_first) {
  if (c.kill_at != never || c.ended) return;
  log::warn("supervisor", "worker {} (pid {}) is ended: {}", c.who.worker, c.pid, why);
  c.condemned = cause;
  c.condemned_for = std::move(why);
  if (ask_first) {
    s.around.processes->signal(c.who, SIGABRT);
    s.around.processes->signal(c.who, SIGCONT);  // one that is stopped dies of it only when it goes on
    c.kill_at = now + kill_after_abort;
  } else {
    c.kill_at = now;
  }
}

/// Whoever's time is over is killed; whoever survives that is written off.
void carry_out_sentences(supervisor_state& s, steady_time now) {
  for (auto& [place, c] : s.children) {
    if (c.ended) continue;
    if (c.kill_at <= now) {
      c.kill_at = sentence_carried_out;
      c.unkillable_at = now + unkillable_after;
      if (!c.condemned) {
        const bool went_silent = c.left_its_link && !c.draining && !s.closing;
        c.condemned = went_silent ? death_cause::protocol : death_cause::stopped;
        c.condemned_for = went_silent ? "it closed its link and lives" : "it did not end in time";
        if (went_silent)
          log::warn("supervisor", "worker {} (pid {}) is ended: {}", c.who.worker, c.pid, c.condemned_for);
      }
      s.around.processes->signal(c.who, SIGKILL);
    }
    if (c.unkillable_at <= now) {
      c.unkillable_at = never;
      log::error("supervisor", "worker {} (pid {}) survives SIGKILL: it waits in the kernel ({})",
                 c.who.worker, c.pid, process::wait_channel(c.pid));
      s.pool->child_unkillable(c.who);
      c.last_flight = s.around.flights->read(place);
      caf::anon_send(s.around.scheduler,
                     scheduler::worker_written_off{
                         c.who, c.condemned == death_cause::stopped ? std::nullopt : sample_in_hand(c),
                         c.last_flight.sample_name, "unkillable"});
    }
  }
}

void send_home(supervisor_state& s, child& c, steady_time now) {
  c.draining = true;
  if (!c.condemned) c.condemned = death_cause::stopped;
  if (c.ready) {
    // One that grows does not work all its leases off first. The batch at hand it does finish: else a batch
    // that takes more than the limit would never be loaded.
    const bool grows = c.condemned == death_cause::memory;
    caf::anon_send(s.around.scheduler, scheduler::worker_drains{c.who, grows});
  } else {
    c.kill_at = std::min(c.kill_at, now);  // it holds nothing yet
  }
}

// ---- starting ---------------------------------------------------------------------------------------------

void start_child_process(supervisor_state& s, const supervision::start_child& order, steady_time now) {
  s.around.flights->clear(order.who.worker);
  child c;
  c.who = order.who;
  c.sacrificial = order.sacrificial;
  c.started = now;
  s.children[order.who.worker] = std::move(c);
  s.hangs->watch(order.who.worker, now);
  s.around.processes->start(order.who);
}

/// The next restart or kill must not wait for the tick.
void wake_when_due(self_pointer self, steady_time now) {
  supervisor_state& s = self->state;
  steady_time due = s.pool->next_deadline();
  for (const auto& [place, c] : s.children) {
    if (!c.ended) due = std::min({due, c.kill_at, c.unkillable_at});
  }
  if (due >= s.wake_at || due >= sentence_carried_out) return;
  s.wake_at = due;
  self->delayed_send(supervisor_actor(self), std::max<nanoseconds>(due - now, 0ns), wake{});
}

void carry_out(self_pointer self) {
  supervisor_state& s = self->state;
  const steady_time now = now_of(self);
  for (const supervision::pool_command& c : s.pool->advance(now)) {
    if (const auto* start = std::get_if<supervision::start_child>(&c)) start_child_process(s, *start, now);
    if (const auto* drain = std::get_if<supervision::drain_child>(&c)) {
      if (child* gone = find(s, drain->who)) send_home(s, *gone, now);
    }
    if (const auto* end = std::get_if<supervision::pool_failed>(&c)) s.around.news.gave_up(end->reason);
  }
  carry_out_sentences(s, now);
  wake_when_due(self, now);
  tell_changes(s, now);
  if (s.closing && s.pool->alive() == 0 && !std::exchange(s.closed_told, true)) s.around.news.pool_closed();
}

// ---- introductions ----------------------------------------------------------------------------------------

void introduce(self_pointer self, child& c, const protocol::hello& hello) {
  supervisor_state& s = self->state;
  if (hello.magic != protocol::hello::expected_magic || hello.version != protocol::version) {
    const bool ours = hello.magic == protocol::hello::expected_magic;
    const std::string why =
        ours ? fmt::format("it speaks protocol {}, this session {}", hello.version, protocol::version)
             : std::string("it is not a penstock worker program");
    condemn(s, c, death_cause::protocol, why, now_of(self), false);
    s.around.news.gave_up({errc::protocol,
                           fmt::format("worker {} was refused: {}; install worker and session of the "
                                       "same version",
                                       c.who.worker, why),
                           0});
    return;
  }
  c.introduced = true;
  c.link->send(protocol::open_dataset{protocol::version, c.who, s.around.settings.config});
}

void listen(self_pointer self, const worker_spoke& said) {
  supervisor_state& s = self->state;
  child* c = find(s, said.who);
  if (c == nullptr || c->ended) return;
  const bool in_order = std::visit(
      [&](const auto& message) {
        using type = std::remove_cvref_t<decltype(message)>;
        if constexpr (std::is_same_v<type, protocol::hello>) {
          if (c->introduced) return false;
          introduce(self, *c, message);
          return true;
        } else if constexpr (std::is_same_v<type, protocol::dataset_described>) {
          if (!c->introduced || std::exchange(c->described, true)) return false;
          s.around.news.worker_described(c->who, message);
          return true;
        } else if constexpr (std::is_same_v<type, protocol::worker_ready>) {
          if (!c->assigned || c->ready) return false;
          c->ready = true;
          s.pool->child_ready(c->who, now_of(self));
          const auto kind =
              c->sacrificial ? schedule::worker_kind::sacrificial : schedule::worker_kind::loader;
          self->send(s.around.scheduler,
                     scheduler::worker_joined{c->who, s.around.settings.slots_per_worker, kind, c->link});
          if (c->draining) self->send(s.around.scheduler, scheduler::worker_drains{c->who});
          return true;
        } else if constexpr (std::is_same_v<type, protocol::worker_gives_up>) {
          if (c->farewell) return false;
          c->farewell = message;
          return true;
        } else {
          return false;
        }
      },
      said.message);
  if (!in_order) {
    condemn(s, *c, death_cause::protocol,
            fmt::format("it sent message {} at the wrong time", said.message.index()), now_of(self), false);
  }
  carry_out(self);
}

// ---- ends -------------------------------------------------------------------------------------------------

void note_end(self_pointer self, const worker_exited& news) {
  supervisor_state& s = self->state;
  child* c = find(s, news.who);
  if (c == nullptr || c->ended) return;
  c->ended = news.report;
  c->last_lines = news.last_lines;
  c->stack = news.stack;
  c->last_flight = s.around.flights->read(news.who.worker);
  const bool shot = news.report.ending == process::exit_report::how::signalled && news.report.code == SIGKILL;
  if (shot && !c->condemned && s.oom.explains_death(now_of(self))) c->condemned = death_cause::oom;
  c->cause_text = cause_in_words(*c);
  s.hangs->forget(news.who.worker);
  self->send(s.around.scheduler,
             scheduler::worker_ended{news.who, suspected_in(*c), c->last_flight.sample_name, c->cause_text});
}

void bury(self_pointer self, const death_judged& judged) {
  supervisor_state& s = self->state;
  child* c = find(s, judged.verdict.who);
  if (c == nullptr || !c->ended) return;
  const steady_time now = now_of(self);
  const death_report report = as_report(*c, judged.verdict, now);
  if (report.cause != death_cause::stopped) {
    s.last_deaths[c->who.worker] = report;
    log::warn("supervisor", "worker {} (pid {}) ended: {}{}{}", c->who.worker, c->pid, c->cause_text,
              report.sample ? fmt::format(", while loading sample {}", *report.sample) : "",
              report.path ? fmt::format(" ({})", *report.path) : "");
  }
  // At the end of the session everybody goes, and the sacrificial worker when it is not needed; that is no
  // news.
  const bool expected = report.cause == death_cause::stopped && (s.closing || c->sacrificial);
  if (!expected) s.around.news.worker_died(report);
  const supervision::death d = as_death(*c, judged.verdict);
  if (c->farewell && d.ending == supervision::death::how::no_restart && !s.closing) {
    s.around.news.gave_up({static_cast<errc>(c->farewell->kind),
                           fmt::format("worker {}: {}", c->who.worker, c->farewell->reason), 0});
  }
  const worker_ref who = c->who;
  const std::string words = last_words_of(*c);
  const std::string cause = c->cause_text;
  s.children.erase(who.worker);
  s.pool->child_died(who, now, d, cause, words);
  carry_out(self);
}

// ---- looking ----------------------------------------------------------------------------------------------

void look_for_hangs(self_pointer self) {
  supervisor_state& s = self->state;
  const steady_time now = now_of(self);
  std::vector<supervision::child_sign> signs;
  for (auto& [place, c] : s.children) {
    if (c.ended || c.pid < 0) continue;
    if (c.traced) c.traced = process::look_at(c.pid).value_or(process::process_facts()).traced;
    const arena::flight_reading flight = s.around.flights->read(place);
    supervision::child_sign sign{place, c.ready, flight.heartbeats, flight.word, false, c.traced};
    // One that has leases and does not begin hangs as well, though no sample is to blame.
    sign.busy = flight.state.at != arena::phase::idle || s.around.leases->of(place) > 0;
    signs.push_back(sign);
  }
  for (supervision::hang_verdict v : s.hangs->look(now, signs)) {
    child& c = s.children.at(v.worker);
    const auto facts = process::look_at(c.pid);
    c.traced = facts && facts->traced;
    if (c.traced) continue;  // a debugger holds it: its clocks stand still from here on
    const auto flight = s.around.flights->read(v.worker);
    const std::string where = process::wait_channel(c.pid, flight.thread);
    if (c.kill_at == never) c.wait_channel = where;
    const std::string tail = where.empty() ? "" : " (" + where + ")";
    const std::string time = duration_for_people(v.since);
    switch (v.kind) {
      case supervision::hang::start:
        condemn(s, c, death_cause::hang, fmt::format("it was not ready {} after its start{}", time, tail),
                now, true);
        break;
      case supervision::hang::heartbeat:
        condemn(s, c, death_cause::heartbeat, fmt::format("no heartbeat for {}{}", time, tail), now, true);
        break;
      case supervision::hang::item: {
        const std::string what = flight.state.at == arena::phase::idle
                                     ? std::string("it has not begun its next batch")
                                     : fmt::format("it works on '{}'", printable(flight.sample_name));
        condemn(s, c, death_cause::hang, fmt::format("{} since {}{}", what, time, tail), now, true);
        break;
      }
    }
  }
}

/// Only the owner uses the GPU: neither a worker nor anything that it has started.
void audit_gpu_use(supervisor_state& s, child& c, steady_time now) {
  const exclusive_rule rule = s.around.settings.exclusive;
  if (rule == exclusive_rule::off || c.gpu_user || c.kill_at != never) return;
  std::vector<pid_t> family = process::descendants_of(c.pid);
  family.insert(family.begin(), c.pid);
  for (const pid_t pid : family) {
    const auto use = process::gpu_use_of(pid);
    if (!use) continue;
    c.gpu_user =
        fmt::format("{} (pid {}): {}; only the GPU owner uses the GPU",
                    pid == c.pid ? "it uses the GPU" : "a process that it started uses the GPU", pid, *use);
    if (rule == exclusive_rule::enforce) return condemn(s, c, death_cause::protocol, *c.gpu_user, now, false);
    return log::warn("supervisor", "worker {}: {}", c.who.worker, *c.gpu_user);
  }
}

void look_at_memory(self_pointer self) {
  supervisor_state& s = self->state;
  const steady_time now = now_of(self);
  if (now < s.next_memory_look) return;
  s.next_memory_look = now + memory_look_every;
  s.oom.look(now);
  for (auto& [place, c] : s.children) {
    if (c.ended || c.pid < 0) continue;
    const auto facts = process::look_at(c.pid);
    if (!facts) continue;
    c.rss_bytes = facts->rss_bytes;
    audit_gpu_use(s, c, now);
    if (!c.ready || c.draining) continue;
    const std::uint64_t limit = s.around.settings.memory_max_bytes;
    if (limit > 0 && facts->rss_anon_bytes > limit) {
      log::warn("supervisor",
                "worker {} (pid {}) uses {} of private memory, [loader.limits] allows {}: it is replaced",
                c.who.worker, c.pid, bytes_for_people(facts->rss_anon_bytes), bytes_for_people(limit));
      c.condemned = death_cause::memory;
      s.pool->recycle(c.who);
    } else if (s.around.settings.recycle_after_samples > 0 &&
               s.around.flights->read(place).samples_done >= s.around.settings.recycle_after_samples) {
      s.pool->recycle(c.who);
    }
  }
}

void keep_ticking(self_pointer self) {
  supervisor_state& s = self->state;
  if (s.closed_told) return;
  self->delayed_send(supervisor_actor(self), s.around.settings.hang.tick(), tick{});
}

void on_tick(self_pointer self) {
  look_for_hangs(self);
  look_at_memory(self);
  carry_out(self);
  keep_ticking(self);
}

void close(self_pointer self, const close_pool& order) {
  supervisor_state& s = self->state;
  s.closing = true;
  s.pool->close();
  const steady_time now = now_of(self);
  for (auto& [place, c] : s.children) {
    if (c.ended) continue;
    if (!c.condemned) c.condemned = death_cause::stopped;
    if (c.link) c.link->send(protocol::stop_work{});
    c.kill_at = std::min(c.kill_at, now + order.patience);
  }
  carry_out(self);
}

supervisor_actor::behavior_type behave(self_pointer self, supervisor_surroundings around) {
  supervisor_state& s = self->state;
  s.around = std::move(around);
  s.pool = std::make_unique<supervision::pool>(s.around.settings.pool);
  s.hangs = std::make_unique<supervision::hang_detector>(s.around.settings.hang);
  return {
      [self](const open_pool&) {
        self->state.pool->open(now_of(self));
        carry_out(self);
        if (!std::exchange(self->state.ticking, true)) keep_ticking(self);
      },
      [self](const close_pool& order) { close(self, order); },
      [self](const worker_started& news) {
        if (child* c = find(self->state, news.who)) {
          c->pid = news.pid;
          log::debug("supervisor", "worker {} started (pid {})", news.who.worker, news.pid);
          c->link = news.link;
          if (self->state.closing) c->link->send(protocol::stop_work{});
        }
        carry_out(self);
      },
      [self](const start_refused& news) {
        if (find(self->state, news.who) == nullptr) return;
        self->state.children.erase(news.who.worker);
        self->state.pool->start_failed(news.who, now_of(self), news.why);
        carry_out(self);
      },
      [self](const worker_spoke& said) { listen(self, said); },
      [self](const worker_lost_link& news) {
        child* c = find(self->state, news.who);
        if (c == nullptr || c->ended) return;
        const steady_time now = now_of(self);
        if (!news.reason.empty()) {
          condemn(self->state, *c, death_cause::protocol, news.reason, now, false);
        } else if (c->kill_at == never) {
          c->kill_at = now + lost_link_deadline;
          c->left_its_link = true;
        }
        carry_out(self);
      },
      [self](const worker_exited& news) { note_end(self, news); },
      [self](const partition_prepared& answer) {
        child* c = find(self->state, answer.who);
        if (c == nullptr || c->ended) return;
        if (answer.slots) {
          c->assigned = true;
          c->link->send(*answer.slots);
        } else {
          c->kill_at = now_of(self);
        }
        carry_out(self);
      },
      [self](const death_judged& judged) { bury(self, judged); },
      [self](const want_sacrificial& order) {
        self->state.pool->want_sacrificial(order.wanted, now_of(self));
        carry_out(self);
      },
      [self](const fence_worker& order) {
        if (child* c = find(self->state, order.who)) {
          condemn(self->state, *c, death_cause::protocol, order.reason, now_of(self), false);
        }
        carry_out(self);
      },
      [self](const worker_sent_home& news) {
        if (child* c = find(self->state, news.who)) {
          c->kill_at = std::min(c->kill_at, now_of(self) + goodbye_deadline);
        }
        carry_out(self);
      },
      [self](const scale_pool& order) {
        self->state.pool->scale(order.workers, now_of(self));
        carry_out(self);
      },
      [self](const restart_worker& order) {
        self->state.pool->restart(order.worker, now_of(self));
        carry_out(self);
      },
      [self](const drain_worker& order) {
        self->state.pool->drain(order.worker);
        carry_out(self);
      },
      [self](const tick&) { on_tick(self); },
      [self](const wake&) {
        self->state.wake_at = never;
        carry_out(self);
      },
  };
}

}  // namespace

supervisor_actor spawn_supervisor(caf::actor_system& system, supervisor_surroundings around) {
  return system.spawn(behave, std::move(around));
}

}  // namespace penstock::supervisor
