#include "actors/jobs/job_scheduler.hpp"

#include "actors/jobs/job_words.hpp"
#include "actors/jobs/parcel_shelf.hpp"
#include "actors/jobs/place_slots.hpp"
#include "runtime/base/log.hpp"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>

namespace penstock::jobs {
namespace {

constexpr auto ask_again = std::chrono::seconds(1);

struct joined_worker {
  worker_ref who;
  std::shared_ptr<protocol::worker_link> link;
  std::shared_ptr<const unique_fd> parcels;
  bool draining = false;
  bool told_to_stop = false;
};

/// A job that has not ended.
struct open_job {
  std::shared_ptr<job_record> record;
  std::uint32_t function = 0;
  bool leased = false;  // it was, at least once: it does not count as waiting any more
};

/// Results that were left in a slot by its last lease.
struct lying_results {
  lease_ref lease;
  std::vector<std::weak_ptr<kept_result>> all;
};

struct scheduler_state {
  scheduler_state() = default;
  ~scheduler_state() = default;
  scheduler_state(const scheduler_state&) = delete;
  scheduler_state& operator=(const scheduler_state&) = delete;

  job_scheduler_surroundings around;
  supervisor::supervisor_actor supervisor;
  std::unique_ptr<schedule::job_book> book;
  std::unordered_map<schedule::job_id, open_job> jobs;
  std::map<std::string, std::uint32_t, std::less<>> functions;
  std::vector<std::shared_ptr<job_record>> early;  // submitted before the functions are known
  std::map<std::uint32_t, place_slots> places;
  std::map<std::uint32_t, joined_worker> workers;
  std::map<std::pair<std::uint32_t, std::uint32_t>, lying_results> in_slots;  // by place and slot
  parcel_shelf parcels;                                                       // that workers have sent
  job_news::tally tally;
  std::vector<std::function<void()>> ended;  // jobs whose callers do not know it yet
  nanoseconds shortest_limit = nanoseconds::max();
  std::optional<failure> cancelled;
  bool functions_known = false;
  bool decision_due = false;
  bool asks_again = false;
  bool sacrificial = false;
};

using self_pointer = job_scheduler_actor::stateful_pointer<scheduler_state>;

void decide_soon(self_pointer self) {
  if (std::exchange(self->state.decision_due, true)) return;
  self->send(job_scheduler_actor(self), decide_jobs{});
}

void fail_job(scheduler_state& s, const std::shared_ptr<job_record>& record, job_failure why) {
  ++s.tally.failed;
  s.around.meter->ended(record->argument().size());
  s.around.news->job_failed(record->number(), record->function(), why);
  s.ended.push_back([record, why = std::move(why)]() mutable { record->fail(std::move(why)); });
}

/// The callers of jobs that have ended hear of it: after the statistics, which they may ask for at once.
void tell_callers(scheduler_state& s) {
  s.around.news->jobs_ended(std::exchange(s.tally, {}));
  const auto ended = std::exchange(s.ended, {});
  for (const auto& tell : ended) tell();
  if (!ended.empty()) s.around.news->callers_told(ended.size());
}

struct carry_out {
  self_pointer self;
  scheduler_state& s = self->state;
  std::uint64_t begun = 0;

  void operator()(const schedule::lease_jobs& order) {
    const auto worker = s.workers.find(order.lease.holder.worker);
    const auto place = s.places.find(order.lease.holder.worker);
    if (worker == s.workers.end() || place == s.places.end()) return;
    std::vector<laid_job> jobs;
    jobs.reserve(order.rows.size());
    for (const schedule::leased_job& row : order.rows) {
      open_job& job = s.jobs.at(row.job);
      const job_record& record = *job.record;
      jobs.push_back({&record, job.function, row.attempt});
      if (!std::exchange(job.leased, true)) ++begun;
      if (record.rules().limit < s.shortest_limit && record.rules().limit.count() > 0) {
        s.shortest_limit = record.rules().limit;
        self->send(s.supervisor, supervisor::limits_in_use{s.shortest_limit});
      }
    }
    if (auto ok = place->second.lay(order.lease, jobs, worker->second.parcels->get()); !ok) {
      log::error("jobs", "giving a job to worker {}: {}", order.lease.holder.worker, ok.error().message);
      caf::anon_send(s.supervisor, supervisor::fence_worker{order.lease.holder, ok.error().message});
      return;
    }
    worker->second.link->send(protocol::run_jobs{order.lease.slot, order.lease.generation,
                                                 static_cast<std::uint32_t>(order.rows.size())});
  }
  void operator()(const schedule::revoke_row& order) {
    const auto place = s.places.find(order.lease.holder.worker);
    if (place != s.places.end() && place->second.revoke(order.lease, order.row)) {
      s.book->row_revoked(order.lease, order.row);
      decide_soon(self);
    }
  }
  void operator()(schedule::settle_job& end) {
    const auto found = s.jobs.find(end.job);
    if (found == s.jobs.end()) return;
    const std::shared_ptr<job_record> record = std::move(found->second.record);
    if (!found->second.leased) ++begun;
    s.jobs.erase(found);
    if (end.how == schedule::job_end::result) return succeed(record, end);
    job_failure why;
    const bool threw = end.how == schedule::job_end::exception || end.how == schedule::job_end::too_large;
    if (threw && end.at)
      why = s.places.at(end.at->lease.holder.worker).failure_of(end.at->lease, end.at->row);
    if (!threw) why.text = text_of(end, *record);
    why.status = status_of(end.how);
    why.attempts = end.attempts;
    why.causes = std::move(end.causes);
    fail_job(s, record, std::move(why));
  }
  void operator()(const schedule::end_worker& order) {
    self->send(s.supervisor, supervisor::cancel_worker{order.who, order.at_once,
                                                       fmt::format("job {} was cancelled", order.job)});
  }
  void operator()(const schedule::refresh_worker& order) {
    self->send(s.supervisor, supervisor::restart_worker{order.who.worker});
  }
  void operator()(const schedule::empty_slot& order) {
    const auto there = s.in_slots.find({order.lease.holder.worker, order.lease.slot});
    if (there == s.in_slots.end()) return;
    for (const auto& one : there->second.all) {
      const auto result = one.lock();
      if (result && result->leave_slot()) s.book->result_gone(order.lease);
    }
    decide_soon(self);
  }

 private:
  /// Our end of the worker's socket for parcels; -1 if it is gone.
  [[nodiscard]] int socket_of(worker_ref who) const {
    const auto worker = s.workers.find(who.worker);
    const bool there = worker != s.workers.end() && worker->second.who == who && worker->second.parcels;
    return there ? worker->second.parcels->get() : -1;
  }

  void succeed(const std::shared_ptr<job_record>& record, const schedule::settle_job& end) {
    const lease_ref& lease = end.at->lease;
    const place_slots& place = s.places.at(lease.holder.worker);
    auto parcel = place.result_elsewhere(lease, end.at->row)
                      ? s.parcels.take(lease, end.at->row, socket_of(lease.holder))
                      : std::nullopt;
    auto result = place.result_of(lease, end.at->row, std::move(parcel), s.around.left, s.around.meter);
    if (!result) {
      if (end.keeps_slot) s.book->result_gone(lease);
      return fail_job(s, record,
                      {job_status::exception, "protocol", result.error().message, {}, {}, end.attempts});
    }
    if (end.keeps_slot) {
      lying_results& there = s.in_slots[{lease.holder.worker, lease.slot}];
      if (there.lease != lease) there = {lease, {}};
      there.all.push_back(*result);
    }
    ++s.tally.ok;
    s.around.meter->ended(record->argument().size());
    s.ended.push_back([record, result = std::move(*result), attempts = end.attempts] {
      record->succeed(result, attempts);
    });
  }
};

void tell_to_stop(scheduler_state& s, joined_worker& worker) {
  if (std::exchange(worker.told_to_stop, true)) return;
  worker.link->send(protocol::stop_work{});
  caf::anon_send(s.supervisor, supervisor::worker_told_to_stop{worker.who});
}

void act(self_pointer self) {
  scheduler_state& s = self->state;
  s.decision_due = false;
  carry_out orders{self};
  for (schedule::job_command& c : s.book->advance(self->clock().now())) std::visit(orders, c);
  if (orders.begun > 0) s.around.meter->begun(orders.begun);
  for (auto& [place, worker] : s.workers) {
    s.around.leases->set(place, s.book->rows_of(place));
    if (worker.draining && s.book->rows_of(place) == 0) tell_to_stop(s, worker);
  }
  if (s.book->wants_sacrificial() != s.sacrificial) {
    s.sacrificial = s.book->wants_sacrificial();
    self->send(s.supervisor, supervisor::want_sacrificial{s.sacrificial});
  }
  tell_callers(s);
  s.around.news->counted(s.book->unsettled() - s.book->waiting(), s.book->stale_dropped());
  // A replacement that never comes is no event: while jobs wait, the book is asked again.
  if (s.book->waiting() > 0 && !std::exchange(s.asks_again, true))
    self->delayed_send(job_scheduler_actor(self), ask_again, decide_jobs{true});
}

// ---- submissions ----------------------------------------------------------------------------------------------

void enter(scheduler_state& s, const std::shared_ptr<job_record>& record) {
  if (s.cancelled) {
    s.around.meter->begun(1);
    return fail_job(s, record, {job_status::cancelled, {}, s.cancelled->message, {}, {}, 0});
  }
  if (!s.functions_known) return s.early.push_back(record);
  const auto function = s.functions.find(record->function());
  if (function == s.functions.end()) {
    s.around.meter->begun(1);
    return fail_job(s, record,
                    {job_status::exception,
                     "unknown_function",
                     fmt::format("the worker program has no function '{}'; it has: {}", record->function(),
                                 names_in_words(s.functions)),
                     {},
                     {},
                     0});
  }
  const std::uint64_t bytes = record->argument().size();
  const bool alone = place_slots::travels_alone(bytes, s.around.shape.slot_bytes);
  s.jobs[record->number()] = {record, function->second, false};
  s.book->submit({record->number(), function->second, alone ? 0 : bytes, record->rules().limit,
                  record->rules().idempotent, record->rules().fresh});
}

void learn_functions(scheduler_state& s, const functions_known& news) {
  for (std::uint32_t i = 0; i < news.names.size(); ++i) s.functions.emplace(news.names[i], i);
  s.functions_known = true;
  for (const auto& record : std::exchange(s.early, {})) enter(s, record);
}

/// Whether it will not begin any more. What its slot says of it is looked at first: a row that has not begun is revoked,
/// one that is over spares its worker.
bool end_known(scheduler_state& s, const end_job& order) {
  if (const auto row = s.book->revocable(order.job)) {
    const auto place = s.places.find(row->lease.holder.worker);
    if (place != s.places.end() && place->second.revoke(row->lease, row->row)) {
      s.book->row_revoked(row->lease, row->row);
    } else if (place != s.places.end()) {
      static_cast<void>(s.book->seen(place->second.read(row->lease, 0, row->row + 1)));
    }
  }
  return s.book->cancel(order.job, order.only_waiting, order.at_once) == schedule::cancelled::before_it_began;
}

void end_one(scheduler_state& s, const end_job& order) {
  bool prevented = false;
  const auto early = std::ranges::find(s.early, order.job, [](const auto& r) { return r->number(); });
  if (early != s.early.end()) {
    const std::shared_ptr<job_record> record = *early;
    s.early.erase(early);
    s.around.meter->begun(1);
    fail_job(s, record, {job_status::cancelled, {}, "it was cancelled before it began", {}, {}, 0});
    prevented = true;
  } else {
    prevented = end_known(s, order);
  }
  if (order.prevented) order.prevented->set_value(prevented);
}

void end_all(scheduler_state& s, const failure& why) {
  s.cancelled = why;
  for (const auto& record : std::exchange(s.early, {})) enter(s, record);
  // The book is not asked any more: whoever waits is told now, and the workers are ended by the supervisor.
  s.book->set_paused(true);
  for (const auto& [number, job] : std::exchange(s.jobs, {})) {
    if (!job.leased) s.around.meter->begun(1);
    fail_job(s, job.record, {job_status::cancelled, {}, why.message, {}, {}, 0});
  }
}

// ---- workers --------------------------------------------------------------------------------------------------

void take_report(scheduler_state& s, const job_report& news) {
  const protocol::jobs_done& done = news.report;
  const lease_ref lease{news.who, done.slot, done.generation};
  const auto place = s.places.find(news.who.worker);
  const bool known =
      place != s.places.end() && done.slot < s.around.shape.slots && done.rows <= s.around.rules.rows_max;
  const schedule::job_arrival how =
      known ? s.book->reported(place->second.read(lease, 0, done.rows)) : schedule::job_arrival::impossible;
  if (how != schedule::job_arrival::impossible) return;
  caf::anon_send(s.supervisor, supervisor::fence_worker{
                                   news.who, fmt::format("it reported {} rows of slot {} generation {}, "
                                                         "which is no lease of its own",
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

void forget(scheduler_state& s, worker_ref who) {
  const auto worker = s.workers.find(who.worker);
  if (worker == s.workers.end() || worker->second.who != who) return;
  s.workers.erase(worker);
  s.around.leases->set(who.worker, 0);
}

std::optional<schedule::charge> settle(scheduler_state& s, worker_ref who, bool blames,
                                       const std::string& cause, steady_time now) {
  const auto charged = s.book->worker_died(who, last_readings(s, who), cause, blames, now);
  if (!charged) return std::nullopt;
  ++s.tally.retried;
  return schedule::charge{charged->job, charged->job, charged->attempt, charged->alone};
}

job_scheduler_actor::behavior_type behave(self_pointer self, job_scheduler_surroundings around) {
  scheduler_state& state = self->state;
  state.around = std::move(around);
  state.book = std::make_unique<schedule::job_book>(state.around.rules);
  return {
      [self](const scheduler::worker_joined& joined) {
        scheduler_state& s = self->state;
        s.workers[joined.who.worker] = {joined.who, joined.link, joined.parcels, false, false};
        s.book->worker_joined(joined.who, joined.slots, joined.kind == schedule::worker_kind::sacrificial);
        decide_soon(self);
      },
      [self](const scheduler::worker_ended& ended) {
        scheduler_state& s = self->state;
        scheduler::judgement verdict{ended.who, std::nullopt, 0, 0};
        verdict.charged = settle(s, ended.who, ended.mark.has_value(), ended.cause, self->clock().now());
        act(self);  // results that lie in the dead worker's parcels are taken while its socket is there
        forget(s, ended.who);
        s.parcels.forget(ended.who);
        self->send(s.supervisor, supervisor::death_judged{std::move(verdict)});
      },
      [self](const scheduler::worker_written_off& lost) {
        settle(self->state, lost.who, lost.mark.has_value(), lost.cause, self->clock().now());
        act(self);
        forget(self->state, lost.who);
      },
      [self](const scheduler::worker_drains& order) {
        scheduler_state& s = self->state;
        s.book->worker_drains(order.who, order.hurries);
        const auto worker = s.workers.find(order.who.worker);
        if (worker != s.workers.end() && worker->second.who == order.who) worker->second.draining = true;
        decide_soon(self);
      },
      [self](const scheduler::cannot_try_alone& order) {
        self->state.book->cannot_try_alone(order.reason);
        decide_soon(self);
      },
      [self](const jobs_submitted& some) {
        for (const auto& record : some.queue->take()) enter(self->state, record);
        decide_soon(self);
      },
      [self](const jobs_reported& some) {
        for (const job_report& one : some.queue->take()) take_report(self->state, one);
        decide_soon(self);
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
        self->state.places.try_emplace(news.partition, news.memory, self->state.around.shape);
      },
      [self](const pause_jobs& order) {
        // What was cancelled is never begun, whoever resumes the pool.
        self->state.book->set_paused(order.paused || self->state.cancelled.has_value());
        decide_soon(self);
      },
      [self](const cancel_all& order) {
        end_all(self->state, order.why);
        tell_callers(self->state);
      },
      [self](const meet_supervisor& news) { self->state.supervisor = news.supervisor; },
      [self](const decide_jobs& order) {
        if (order.again) self->state.asks_again = false;
        act(self);
      },
      [self](const stop_jobs&) {
        tell_callers(self->state);
        self->state.supervisor = supervisor::supervisor_actor();
        self->quit();
      },
  };
}

}  // namespace

job_scheduler_actor spawn_job_scheduler(caf::actor_system& system, job_scheduler_surroundings around) {
  return system.spawn(behave, std::move(around));
}

}  // namespace penstock::jobs
