#include "actors/caf/caf.hpp"
#include "actors/jobs/job_scheduler_state.hpp"

#include <algorithm>

namespace penstock::jobs {

void decide_soon(self_pointer self) {
  if (std::exchange(self->state.decision.due, true)) return;
  self->send(job_scheduler_actor(self), decide_jobs{});
}

namespace {

/// A thread outside the actor system handles only the message that it sent, so it decides at once.
void decide(self_pointer self, notify callers) {
  if (!self->run_by_sender()) return decide_soon(self);
  act(self, callers);
}

// ---- workers ----------------------------------------------------------------------------------------------

void take_report(scheduler_state& s, const job_report& news) {
  const protocol::jobs_done& done = news.report;
  const lease_ref lease{news.who, done.slot, done.generation};
  const auto place = s.places.find(news.who.worker);
  const bool known =
      place != s.places.end() && done.slot < s.deps.shape.slots && done.rows <= s.deps.rules.rows_max;
  const schedule::job_arrival how =
      known ? s.book->reported(place->second.read(lease, 0, done.rows)) : schedule::job_arrival::impossible;
  if (how != schedule::job_arrival::impossible) return;
  actors::tell(s.supervisor,
               supervisor::fence_worker{news.who, fmt::format("it reported {} rows of slot {} generation {}, "
                                                              "which it does not hold",
                                                              done.rows, done.slot, done.generation)});
}

std::vector<schedule::lease_reading> last_readings(const scheduler_state& s, worker_ref who) {
  std::vector<schedule::lease_reading> all;
  const auto place = s.places.find(who.worker);
  if (place == s.places.end()) return all;
  for (const schedule::open_lease& open : s.book->leases_of(who))
    all.push_back(place->second.read(open.lease, open.settled, open.rows));
  return all;
}

/// Reads the rows of running leases. A worker may report an ended job only when the next job of the lease
/// ends. If that takes long, this finds the ended job earlier.
void look_at_bundles(scheduler_state& s) {
  for (const auto& [index, worker] : s.workers) {
    for (const schedule::lease_reading& so_far : last_readings(s, worker.who))
      static_cast<void>(s.book->seen(so_far));
  }
}

void join(scheduler_state& s, const scheduler::worker_joined& joined) {
  s.workers[joined.who.worker] = {joined.who, joined.link, joined.parcels, false, false};
  s.book->worker_joined(joined.who, joined.slots, joined.kind == schedule::worker_kind::sacrificial);
}

void drain(scheduler_state& s, const scheduler::worker_drains& order) {
  s.book->worker_drains(order.who, order.after_current_batch);
  const auto worker = s.workers.find(order.who.worker);
  if (worker != s.workers.end() && worker->second.who == order.who) worker->second.draining = true;
}

void forget(scheduler_state& s, worker_ref who) {
  const auto worker = s.workers.find(who.worker);
  if (worker == s.workers.end() || worker->second.who != who) return;
  s.workers.erase(worker);
  s.deps.leases->set(who.worker, 0);
}

std::optional<schedule::blame> settle(scheduler_state& s, worker_ref who, schedule::job_death how,
                                      const std::string& cause, const std::string& work, steady_time now) {
  const auto blamed = s.book->worker_died(who, last_readings(s, who), cause, how, now);
  s.deps.listener->leases_lost(s.book->last_losses().leases);
  if (!blamed) return std::nullopt;
  ++s.tally.retried;
  std::uint32_t attempt = blamed->attempt;
  if (const auto job = s.jobs.find(blamed->job); job != s.jobs.end()) {
    ++s.functions.counts[job->second.function].retried;
    job->second.record->note_work(work);
    attempt += job->second.record->rules().attempts_before;
  }
  const std::uint64_t job = known_as(s, blamed->job);
  return schedule::blame{job, job, attempt, blamed->alone};
}

schedule::job_death death_of(bool charged, bool took_too_long) {
  if (!charged) return schedule::job_death::unrelated;
  return took_too_long ? schedule::job_death::of_its_limit : schedule::job_death::of_the_job;
}

constexpr std::uint32_t host_losses_charged_from = 3;

/// Whether the end is blamed on the current job. A lost host is blamed on the job only if the job keeps losing hosts
/// (rule H4).
bool charges(scheduler_state& s, const scheduler::worker_ended& ended) {
  if (!ended.host_lost || !ended.mark) return ended.mark.has_value();
  const auto job = s.book->would_blame(ended.who, last_readings(s, ended.who));
  return job && ++s.host_losses[job->job] >= host_losses_charged_from;
}

void decide_blame(self_pointer self, const scheduler::worker_ended& ended) {
  scheduler_state& s = self->state;
  scheduler::blame_decision decision{ended.who, std::nullopt, 0, 0};
  decision.blamed =
      settle(s, ended.who, death_of(charges(s, ended), ended.took_too_long), ended.cause, ended.sample_name, self->clock().now());
  decision.held = s.book->last_losses().jobs;
  decision.held_again = s.book->last_losses().again;
  self->send(s.supervisor, supervisor::blame_decided{std::move(decision)});  // send first: the death is reported before its consequences
  act(self);  // takes the dead worker's results from its parcels while the socket is open
  forget(s, ended.who);
  s.parcels->forget(ended.who);
}

void write_off(self_pointer self, const scheduler::worker_written_off& lost) {
  settle(self->state, lost.who, death_of(lost.mark.has_value(), lost.took_too_long), lost.cause, lost.sample_name,
         self->clock().now());
  act(self);
  forget(self->state, lost.who);
}

void take_answers(scheduler_state& s, std::vector<device_answer> answers) {
  for (device_answer& one : answers) {
    if (auto ended = s.device->answered(std::move(one))) end_at_device(s, std::move(*ended));
  }
}

void leave(self_pointer self) {
  report_counts(self->state);
  notify_callers(self->state);
  self->state.supervisor = supervisor::supervisor_actor();
  self->state.owner = gpu_owner::gpu_owner_actor();
  self->quit();
}

actors::handlers<heard> behave(self_pointer self, job_scheduler_deps deps) {
  scheduler_state& state = self->state;
  state.deps = std::move(deps);
  state.book = std::make_unique<schedule::job_book>(state.deps.rules);
  state.book->set_results_before(
      [meter = state.deps.meter.get()](schedule::job_id job) { return meter->results_before(job); });
  state.parcels.emplace(state.deps.shape.slots, state.deps.rules.rows_max);
  state.device = std::make_unique<device_jobs>(state.deps.buffers, state.deps.meter);
  return {
      [self](const scheduler::worker_joined& joined) {
        join(self->state, joined);
        decide_soon(self);
      },
      [self](const scheduler::worker_ended& ended) { decide_blame(self, ended); },
      [self](const scheduler::worker_written_off& lost) { write_off(self, lost); },
      [self](const scheduler::worker_drains& order) {
        drain(self->state, order);
        decide_soon(self);
      },
      [self](const scheduler::cannot_try_alone& order) {
        self->state.book->cannot_try_alone(order.reason);
        decide_soon(self);
      },
      [self](const jobs_submitted& some) {
        for (const auto& record : some.queue->take()) enter(self->state, record);
        decide(self, notify::later);  // this thread may hold locks that callbacks need
      },
      [self](const jobs_reported& some) {
        for (const job_report& one : some.queue->take()) take_report(self->state, one);
        decide(self, notify::now);
      },
      [self](const results_released& some) {
        for (const lease_ref& lease : some.queue->take()) self->state.book->result_gone(lease);
        decide_soon(self);
      },
      [self](const end_job& order) {
        end_one(self->state, order);
        decide_soon(self);
      },
      [self](const functions_known& news) {
        learn_functions(self->state, news);
        decide_soon(self);
      },
      [self](const partition_mapped& news) {
        self->state.places.try_emplace(news.partition, news.memory, self->state.deps.shape);
      },
      [self](const device_answered& some) {
        take_answers(self->state, some.queue->take());
        decide_soon(self);
      },
      [self](const device_lost& news) {
        end_at_device(self->state, self->state.device->owner_lost(news));
        decide_soon(self);
      },
      [self](const device_failed& news) {
        end_at_device(self->state, self->state.device->failed(news.why));
        decide_soon(self);
      },
      [self](const meet_owner& news) { self->state.owner = news.owner; },
      [self](const pause_jobs& order) {
        // After cancel_all nothing may start, so resuming has no effect.
        self->state.book->set_paused(order.paused || self->state.cancelled.has_value());
        decide_soon(self);
      },
      [self](const cancel_all& order) {
        end_all(self->state, order.why);
        act(self);
      },
      [self](const meet_supervisor& news) { self->state.supervisor = news.supervisor; },
      [self](const decide_jobs& order) {
        if (order.why == decide_jobs::reason::second) {
          self->state.decision.asked_in_a_second = false;
          look_at_bundles(self->state);
        }
        if (order.why == decide_jobs::reason::look) self->state.decision.at.reset();
        act(self);
      },
      [self](const stop_jobs&) { leave(self); },
  };
}

}  // namespace

job_scheduler_actor spawn_job_scheduler(actors::actor_system& system, job_scheduler_deps deps) {
  return actors::spawn_shared(system, behave, std::move(deps));
}

}  // namespace penstock::jobs
