#include "actors/scheduler/scheduler.hpp"

#include "actors/caf/caf.hpp"
#include "actors/scheduler/scheduler_state.hpp"
#include "runtime/base/log.hpp"

#include <iterator>

namespace penstock::scheduler {
namespace {

using self_pointer = actors::self<scheduler_actor, scheduler_state>;

/// Decides after the messages that are in the mailbox now.
void decide_soon(self_pointer self) {
  if (std::exchange(self->state.decision_due, true)) return;
  self->send(scheduler_actor(self), decide{});
}

struct carry_out {
  scheduler_state& s;
  steady_time now;
  gpu_owner::upload_batches uploads;

  /// Null if the worker has died since the ledger decided. Another process may be in its place by now.
  [[nodiscard]] protocol::worker_link* link_of(worker_ref who) const {
    const auto worker = s.workers.find(who.worker);
    return worker == s.workers.end() || worker->second.who != who ? nullptr : worker->second.link.get();
  }
  void operator()(schedule::load_command& load) {
    protocol::worker_link* const link = link_of(load.lease.holder);
    if (link == nullptr) return;
    protocol::load_batch message{load.lease.slot, load.lease.generation, load.epoch, {}, load.hedge};
    message.samples.reserve(load.samples.size());
    for (const schedule::planned_sample& p : load.samples) message.samples.push_back({p.sample, p.attempt});
    link->send(std::move(message));
    s.times.leased(load, s.source->sequence_of(load.position), now);
    s.late.leased(load, now);
  }
  void operator()(const schedule::drop_command& drop) {
    if (auto* const link = link_of(drop.lease.holder)) link->send(protocol::drop_batch{drop.lease.slot, drop.lease.generation});
  }
  void operator()(schedule::upload_command& upload) {
    uploads.orders.push_back({upload.upload, s.era, s.seek_number, upload.position,
                              s.source->epoch_of(upload.position), s.source->sequence_of(upload.position),
                              upload.worker, upload.slot, std::move(upload.samples)});
  }
  void operator()(schedule::sample_failed& failed) {
    lost_sample lost = s.source->lost(failed.position, failed.sample);
    lost.alike = s.failures->note(lost.name, failed.reason);
    lost.reason = std::move(failed.reason);
    s.deps.listener->sample_failed(lost);
  }
  void operator()(schedule::sample_quarantined& quarantined) {
    lost_sample lost = s.source->lost(quarantined.position, quarantined.sample);
    lost.attempts = quarantined.attempts;
    lost.causes = std::move(quarantined.causes);
    s.deps.listener->sample_quarantined(lost);
    actors::tell(s.others.session, session::sample_quarantined{std::move(lost)});
  }
  void operator()(schedule::batch_discarded& discarded) {
    log::debug("scheduler", "batch {} will be loaded again later: an earlier batch needed its slot",
               discarded.position);
  }
  void operator()(schedule::batch_recovered& again) {
    s.deps.listener->batch_recovered(s.source->epoch_of(again.position), s.source->sequence_of(again.position));
  }
  void operator()(schedule::give_up& end) { s.deps.listener->gave_up(end.reason); }
};

void tell_drained_to_stop(scheduler_state& s) {
  const auto leases_of = [&](std::uint32_t worker) { return s.ledger ? s.ledger->leases_of(worker) : 0; };
  for (const worker_ref who : s.departures.due(leases_of)) {
    s.workers.at(who.worker).link->send(protocol::stop_work{});
    actors::tell(s.others.supervisor, supervisor::worker_told_to_stop{who});
  }
}

/// Holds back uploads that the gate does not let pass yet, and adds earlier ones that it now lets pass. The
/// gate remembers that an upload is waiting, and gate_moved arrives when it can pass.
void pass_gate(scheduler_state& s, std::vector<upload_order>& orders, steady_time now) {
  std::move(orders.begin(), orders.end(), std::back_inserter(s.at_gate));
  orders.clear();
  while (!s.at_gate.empty()) {
    const std::uint64_t step = s.at_gate.front().position + 1;
    if (s.deps.gate->hand_out(step, now) != group::gate_answer::go) return;
    orders.push_back(std::move(s.at_gate.front()));
    s.at_gate.pop_front();
  }
}

void act(self_pointer self) {
  scheduler_state& s = self->state;
  s.decision_due = false;
  if (!s.ledger) return tell_drained_to_stop(s);
  s.ledger->set_paused(s.paused || (s.deps.gate && !s.deps.gate->begun()));
  carry_out orders{s, self->clock().now(), {}};
  for (schedule::command& c : s.ledger->advance()) std::visit(orders, c);
  if (s.deps.gate && s.deps.uploads_pass_gate) pass_gate(s, orders.uploads.orders, orders.now);
  // A batch that waits at the gate has not been sent to the owner yet.
  for (const upload_order& o : orders.uploads.orders) s.times.ordered(o.position, orders.now);
  if (!orders.uploads.orders.empty()) self->send(s.others.owner, std::move(orders.uploads));
  tell_drained_to_stop(s);
  for (const auto& [index, worker] : s.workers) s.deps.leases->set(index, s.ledger->leases_of(index));
  if (s.ledger->wants_sacrificial() != s.sacrificial) {
    s.sacrificial = s.ledger->wants_sacrificial();
    self->send(s.others.supervisor, supervisor::want_sacrificial{s.sacrificial});
  }
  s.deps.listener->counted(s.ledger->stale_dropped(), s.ledger->quarantined(), s.ledger->hedges());
  if (s.ledger->finished() && !std::exchange(s.finished_told, true))
    s.deps.listener->stream_finished(s.seek_number);
}

void open(scheduler_state& s, const open_stream& order) {
  s.source = std::make_unique<planned_source>(order.order);
  s.ledger = std::make_unique<schedule::ledger>(order.rules, *s.source, order.range);
  s.book = std::make_unique<schedule::epoch_book>(order.identity, order.order->shape(), order.demanded);
  s.book->begin_at(order.range.first);
  s.failures.emplace(order.max_failed_fraction);
  for (const quarantine_report& known : order.quarantined) {
    s.ledger->quarantine_known(known.sample);
    if (known.path) s.source->name(known.sample, *known.path);
  }
  if (order.resumed) {
    s.book->resume(*order.resumed);
    for (const std::uint64_t sample : order.resumed->quarantined_samples) s.ledger->quarantine_known(sample);
  }
}

void join(scheduler_state& s, const worker_joined& joined) {
  s.workers[joined.who.worker] = {joined.who, joined.link};
  s.ledger->worker_joined(joined.who, joined.slots, joined.kind, joined.host);
}

void note_memory(scheduler_state& s, const place_prepared& news) {
  news.slots ? s.ledger->place_grows(news.worker, *news.slots) : s.ledger->place_complete(news.worker);
}

void drain(scheduler_state& s, const worker_drains& order) {
  if (s.ledger) s.ledger->worker_drains(order.who);
  const auto worker = s.workers.find(order.who.worker);
  if (worker != s.workers.end() && worker->second.who == order.who)
    s.departures.drains(order.who, order.after_current_batch);
}

/// Store the name first: if the sample is quarantined, the report contains it.
void note_name(scheduler_state& s, worker_ref who, const std::optional<schedule::flight_mark>& mark,
               const std::string& name) {
  if (!mark || name.empty()) return;
  if (const auto sample = s.ledger->resolve(who, *mark)) s.source->name(sample->sample, name);
}

void forget(scheduler_state& s, worker_ref who) {
  const auto worker = s.workers.find(who.worker);
  if (worker == s.workers.end() || worker->second.who != who) return;
  s.workers.erase(worker);
  s.departures.gone(who);
  s.deps.leases->set(who.worker, 0);
}

void write_off(scheduler_state& s, const worker_written_off& lost) {
  if (s.ledger) {
    note_name(s, lost.who, lost.mark, lost.sample_name);
    s.ledger->worker_died(lost.who, lost.mark, lost.cause);
  }
  forget(s, lost.who);
}

void settle_death(scheduler_state& s, const worker_ended& ended) {
  blame_decision decision{ended.who, std::nullopt, 0, 0};
  if (s.ledger) {
    note_name(s, ended.who, ended.mark, ended.sample_name);
    decision.held = s.ledger->leases_of(ended.who.worker);
    decision.held_again = s.ledger->lost_before(ended.who.worker);
    if (const auto in_hand = ended.in_hand ? s.ledger->resolve(ended.who, *ended.in_hand) : std::nullopt) {
      decision.in_hand = in_hand->sample;
      decision.epoch = s.source->epoch_of(in_hand->position);
      decision.sequence = s.source->sequence_of(in_hand->position);
    }
    decision.blamed = s.ledger->worker_died(ended.who, s.hosts.charged(*s.ledger, ended), ended.cause);
    if (decision.blamed) {
      decision.epoch = s.source->epoch_of(decision.blamed->position);
      decision.sequence = s.source->sequence_of(decision.blamed->position);
      if (decision.blamed->alone) decision.held = decision.held_again = 0;  // the sample was tried without its batch
    }
  }
  forget(s, ended.who);
  actors::tell(s.others.supervisor, supervisor::blame_decided{std::move(decision)});
}

/// Stores the names of failed samples. A report has only their rows and names; the ledger knows which sample
/// is in each row.
void note_names(scheduler_state& s, const lease_reported& news) {
  for (const protocol::wire_row_failure& f : news.report.failures) {
    if (f.name.empty()) continue;
    const auto sample = s.ledger->resolve(news.who, {news.report.slot, news.report.generation, f.row});
    if (sample) s.source->name(sample->sample, f.name);
  }
}

void take_report(scheduler_state& s, lease_reported& news, steady_time now) {
  if (!s.ledger) return;
  note_names(s, news);
  const nanoseconds busy(static_cast<std::int64_t>(news.report.busy_ns));
  schedule::load_report report{{news.who, news.report.slot, news.report.generation}, news.report.rows, {}, busy};
  const auto position = s.ledger->position_of(report.lease);
  for (protocol::wire_row_failure& f : news.report.failures) report.failures.push_back({f.row, std::move(f.reason)});
  const schedule::arrival how = s.ledger->loaded(report);
  if (how == schedule::arrival::accepted) {
    if (position) s.times.loaded(*position, news.who.worker, news.report, now);
    s.late.loaded(position, news.report.sample_us, now);
    s.departures.finished_a_batch(news.who);
  }
  if (how == schedule::arrival::impossible) {
    std::string why = fmt::format("it reported slot {} generation {} with {} rows and {} failures, which matches none of its leases",
                                  report.lease.slot, report.lease.generation, report.rows, report.failures.size());
    actors::tell(s.others.supervisor, supervisor::fence_worker{news.who, std::move(why)});
  }
}

void look_for_late(self_pointer self) {
  scheduler_state& s = self->state;
  if (s.ledger) s.late.look(s.workers, *s.ledger, self->clock().now());
  decide_soon(self);
  self->delayed_send(scheduler_actor(self), s.late.pause(), look_for_late_workers{});
}

void deliver(scheduler_state& s, const batch_delivered& batch) {
  if (!s.ledger) return;
  const auto done = s.ledger->acknowledged(batch.upload);
  if (!done) return;
  s.hosts.delivered(done->position);
  const schedule::epoch_account& account = s.book->delivered(
      {done->position, done->delivered, done->failed, done->quarantined, batch.digest, batch.demanded,
       batch.taken.value_or(std::chrono::steady_clock::now()), done->replaced});
  s.deps.listener->batch_delivered(*done, account.epoch);
  if (account.complete) s.deps.listener->epoch_done(account);
  if (const auto too_many = s.failures->check(account)) s.deps.listener->gave_up(*too_many);
}

void lose_owner(scheduler_state& s, const owner_lost& news) {
  s.era = news.era;
  s.at_gate.clear();  // the ledger uploads them again
  if (!s.ledger) return;
  s.ledger->owner_died();
  if (news.poison) s.ledger->leave_out(news.poison->position, news.poison->reason);
}

stream_accounts accounts_of(const scheduler_state& s, bool epochs) {
  if (!s.book) return {};
  stream_accounts all{{}, s.book->state()};
  if (epochs) all.epochs = s.book->epochs();
  all.state->quarantined_samples.assign(s.ledger->quarantined_samples().begin(),
                                        s.ledger->quarantined_samples().end());
  return all;
}

void seek(scheduler_state& s, const seek_stream& where) {
  s.seek_number = where.seek_number;
  s.finished_told = false;
  if (!s.ledger) return;
  s.times.forget();
  s.late.forget();
  s.hosts.forget();
  if (where.order) {
    s.source->use(where.order);
    s.book->reshape(where.order->shape());
  }
  s.ledger->seek(where.range);
  s.book->begin_at(where.range.first);
}

/// Calls change(state, message). The ledger decides soon afterwards.
template <class Message, class Change>
auto on(self_pointer self, Change change) {
  return [self, change](const Message& message) {
    change(self->state, message);
    decide_soon(self);
  };
}

scheduler_actor::behavior_type behave(self_pointer self, scheduler_deps deps) {
  self->state.deps = std::move(deps);
  self->state.times.record_in(self->state.deps.times);
  if (self->state.late.watch(self->state.deps.flights, self->state.deps.first_remote_place))
    self->send(scheduler_actor(self), look_for_late_workers{});
  return {
      // CAF tries these in order, so frequent messages come first.
      [self](const decide&) { act(self); },
      [self](const leases_reported& some) {
        for (lease_reported& one : some.queue->take()) take_report(self->state, one, self->clock().now());
        decide_soon(self);
      },
      [self](const slots_released& released) {
        if (!self->state.ledger) return;
        for (const std::uint64_t upload : released.uploads) self->state.ledger->slot_released(upload);
        decide_soon(self);
      },
      [self](const batches_delivered& some) {
        for (const batch_delivered& one : some.queue->take()) deliver(self->state, one);
        decide_soon(self);
      },
      [self](const protocol::meet& all) { self->state.others = all.others; },
      on<open_stream>(self, open),
      on<place_prepared>(self, note_memory),
      on<worker_joined>(self, join),
      on<worker_ended>(self, settle_death),
      on<worker_written_off>(self, write_off),
      on<worker_drains>(self, drain),
      on<owner_lost>(self, lose_owner),
      on<seek_stream>(self, seek),
      on<pause_stream>(self, [](auto& s, auto& order) { s.paused = order.paused; }),
      [self](const gate_moved&) { decide_soon(self); },
      on<cannot_try_alone>(self, [](auto& s, auto& order) { if (s.ledger) s.ledger->cannot_try_alone(order.reason); }),
      on<lift_quarantine>(self, [](auto& s, auto& order) { if (s.ledger) s.ledger->release_from_quarantine(order.sample); }),
      [self](const tell_accounts& order) {
        order.to->set_value(accounts_of(self->state, order.epochs));
        self->state.deps.listener->answered();
      },
      [self](const look_for_late_workers&) { look_for_late(self); },
      [self](const stop_scheduling&) {
        self->state.others = {};
        self->quit();
      },
  };
}

}  // namespace

scheduler_actor spawn_scheduler(actors::actor_system& system, scheduler_deps deps) {
  return actors::spawn(system, behave, std::move(deps));
}

}  // namespace penstock::scheduler
