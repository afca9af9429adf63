// Translates the job book's commands into messages to workers, supervisor and callers.
#include "actors/caf/caf.hpp"
#include "actors/jobs/job_scheduler_state.hpp"
#include "actors/jobs/job_texts.hpp"
#include "runtime/base/log.hpp"

namespace penstock::jobs {
namespace {

constexpr auto ask_again = std::chrono::seconds(1);

void succeed_job(scheduler_state& s, const std::shared_ptr<job_record>& record,
                 std::shared_ptr<kept_result> result, std::uint32_t attempts) {
  ++s.tally.ok;
  if (record->rules().stays_there) s.stay_there.erase(record->number());
  s.deps.meter->ended(record->argument().size());
  s.ended.push_back([record, result = std::move(result), attempts] { record->succeed(result, attempts); });
}

struct carry_out {
  self_pointer self;
  steady_time now;
  scheduler_state& s = self->state;
  std::uint64_t begun = 0;

  void operator()(const schedule::lease_jobs& order) {
    const auto worker = s.workers.find(order.lease.holder.worker);
    const auto place = s.places.find(order.lease.holder.worker);
    if (worker == s.workers.end() || place == s.places.end()) return;
    std::vector<slot_job> jobs;
    jobs.reserve(order.rows.size());
    for (const schedule::leased_job& row : order.rows) {
      open_job& job = s.jobs.at(row.job);
      job_record& record = *job.record;
      jobs.push_back({&record, job.function, row.attempt});
      if (!row.first || record.rules().again) s.deps.listener->leased_again(row.job, now);
      if (!std::exchange(job.leased, true)) {
        ++begun;
        --s.functions.counts[job.function].waiting;
        ++s.functions.counts[job.function].running;
      }
      if (record.rules().limit < s.shortest_limit && record.rules().limit.count() > 0) {
        s.shortest_limit = record.rules().limit;
        self->send(s.supervisor, supervisor::limits_in_use{s.shortest_limit});
      }
    }
    if (!place->second.written_at_once(jobs))
      return deliver(order.lease, place->second.deliver(order.lease, jobs), worker->second, jobs.size());
    place->second.write_jobs(order.lease, jobs);
    tell_worker(*worker->second.link, order.lease, jobs.size());
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
    const bool to_device = end.how == schedule::job_end::result && record->rules().to_device;
    if (!to_device) note_end(s, found->second, status_of(end.how));
    const bool ended = found->second.ending;
    s.jobs.erase(found);
    s.host_losses.erase(end.job);
    if (to_device && ended) {
      s.book->result_gone(end.at->lease);
      const job_failure cancelled{
          job_status::cancelled, {}, "it was cancelled before its result reached the device", {}, {},
          end.attempts};
      return end_at_device(s, {record, end.attempts, cancelled});
    }
    if (end.how == schedule::job_end::result) return succeed(record, end);
    job_failure why;
    const bool threw = end.how == schedule::job_end::exception || end.how == schedule::job_end::too_large;
    if (threw && end.at)
      why = s.places.at(end.at->lease.holder.worker).failure_of(end.at->lease, end.at->row, parcel_of(end));
    if (!threw) why.text = text_of(end, *record);
    why.status = status_of(end.how);
    why.attempts = end.attempts;
    why.causes = std::move(end.causes);
    fail_job(s, record, std::move(why));
  }
  void operator()(const schedule::end_worker& order) {
    self->send(s.supervisor, supervisor::cancel_worker{order.who, order.at_once,
                                                       fmt::format("job {} was cancelled", known_as(s, order.job))});
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
  static void tell_worker(protocol::worker_link& link, const lease_ref& lease, std::size_t rows) {
    link.expect(rows);  // the worker may report after each row
    link.send(protocol::run_jobs{lease.slot, lease.generation, static_cast<std::uint32_t>(rows)});
  }

  /// Other threads copy the arguments, because copying takes much longer than deciding.
  void deliver(const lease_ref& lease, argument_delivery delivery, const joined_worker& to,
               std::size_t rows) {
    auto work = [lease, rows, link = to.link, parcels = to.parcels, supervisor = s.supervisor,
                 arguments = std::make_shared<std::optional<argument_delivery>>(std::move(delivery))] {
      const auto copied = (*arguments)->copy(parcels->get());
      if (copied) {
        tell_worker(*link, lease, rows);
      } else {
        log::error("jobs", "giving a job to worker {}: {}", lease.holder.worker, copied.error().message);
        actors::tell(supervisor, supervisor::fence_worker{lease.holder, copied.error().message});
      }
      arguments->reset();
    };
    s.copiers.add(lease.holder.worker, std::move(work));
  }

  /// Our end of the worker's parcel socket; -1 if it is closed.
  [[nodiscard]] int socket_of(worker_ref who) const {
    const auto worker = s.workers.find(who.worker);
    const bool there = worker != s.workers.end() && worker->second.who == who && worker->second.parcels;
    return there ? worker->second.parcels->get() : -1;
  }

  /// The parcel that the worker sent for a row whose result or error is not in the slot.
  [[nodiscard]] std::optional<protocol::parcel> parcel_of(const schedule::settle_job& end) const {
    const lease_ref& lease = end.at->lease;
    if (!s.places.at(lease.holder.worker).result_elsewhere(lease, end.at->row)) return std::nullopt;
    return s.parcels->take(lease, end.at->row, socket_of(lease.holder));
  }

  void succeed(const std::shared_ptr<job_record>& record, const schedule::settle_job& end) {
    if (record->rules().to_device) return hand_to_device(record, end);
    const lease_ref& lease = end.at->lease;
    const place_slots& place = s.places.at(lease.holder.worker);
    auto result =
        place.result_of(record->number(), lease, end.at->row, parcel_of(end), s.deps.left, s.deps.meter);
    if (!result) {
      if (end.keeps_slot) s.book->result_gone(lease);
      return fail_job(s, record,
                      {job_status::exception, "protocol", result.error().message, {}, {}, end.attempts});
    }
    if (end.keeps_slot) {
      slot_results& there = s.in_slots[{lease.holder.worker, lease.slot}];
      if (there.lease != lease) there = {lease, {}};
      there.all.push_back(*result);
    }
    succeed_job(s, record, std::move(*result), end.attempts);
  }

  /// The book considers the job ended, but its slot stays occupied.
  void hand_to_device(const std::shared_ptr<job_record>& record, const schedule::settle_job& end) {
    const lease_ref& lease = end.at->lease;
    auto result = s.places.at(lease.holder.worker)
                      .result_in_slot(record->number(), lease, end.at->row, s.deps.left, s.deps.meter);
    if (!result) {
      static_cast<void>(s.parcels->take(lease, end.at->row, socket_of(lease.holder)));  // drop the parcel
      s.book->result_gone(lease);
      const bool large = result.error().code == errc::out_of_memory;
      const job_failure why{large ? job_status::too_large : job_status::exception,
                            large ? "" : "protocol",
                            result.error().message,
                            {},
                            {},
                            end.attempts};
      return end_at_device(s, {record, end.attempts, why});
    }
    if (auto ended = s.device->add(record, std::move(*result), end.attempts))
      end_at_device(s, std::move(*ended));
  }
};

/// Sends pending uploads. Reports it if jobs on the device wait for callers to free buffers.
void tell_owner(self_pointer self) {
  scheduler_state& s = self->state;
  auto uploads = s.device->orders(s.stay_there.empty() ? 0 : *s.stay_there.begin());
  if (!uploads.empty()) self->send(s.owner, gpu_owner::upload_batches{std::move(uploads)});
  if (const auto who = s.device->waits_for_callers(std::chrono::steady_clock::now()))
    s.deps.listener->waits_for_callers(*who);
}

/// Zero after cancel_all: the book is not told about that and still counts these jobs.
std::uint64_t leased(const scheduler_state& s) {
  return s.cancelled ? 0 : s.book->unsettled() - s.book->waiting();
}

void tell_to_stop(scheduler_state& s, joined_worker& worker) {
  if (std::exchange(worker.told_to_stop, true)) return;
  worker.link->send(protocol::stop_work{});
  actors::tell(s.supervisor, supervisor::worker_told_to_stop{worker.who});
}

}  // namespace

std::uint64_t known_as(const scheduler_state& s, schedule::job_id job) {
  const auto found = s.jobs.find(job);
  return found == s.jobs.end() ? job : found->second.record->known_as();
}

void note_end(scheduler_state& s, const open_job& job, job_status how) {
  job_listener::function_counts& counts = s.functions.counts[job.function];
  --(job.leased ? counts.running : counts.waiting);
  ++(how == job_status::ok ? counts.ok : how == job_status::cancelled ? counts.cancelled : counts.failed);
}

void end_at_device(scheduler_state& s, device_outcome outcome) {
  const auto* const failed = std::get_if<job_failure>(&outcome.how);
  note_end(s, {outcome.record, s.functions.indexes.find(outcome.record->function())->second, true}, failed == nullptr ? job_status::ok : failed->status);
  if (auto* const why = std::get_if<job_failure>(&outcome.how))
    return fail_job(s, outcome.record, std::move(*why));
  succeed_job(s, outcome.record, std::get<std::shared_ptr<kept_result>>(std::move(outcome.how)),
              outcome.attempts);
}

void end_at_device(scheduler_state& s, std::vector<device_outcome> outcomes) {
  for (device_outcome& one : outcomes) end_at_device(s, std::move(one));
}

void fail_job(scheduler_state& s, const std::shared_ptr<job_record>& record, job_failure why) {
  ++(why.status == job_status::cancelled ? s.tally.cancelled : s.tally.failed);
  if (record->rules().stays_there) s.stay_there.erase(record->number());
  s.deps.meter->ended(record->argument().size());
  if (why.attempts > 0) why.ran = record->ran_for(std::chrono::steady_clock::now());
  s.deps.listener->job_failed(record->known_as(), record->work(), why, record->rules().inputs);
  s.ended.push_back([record, why = std::move(why)]() mutable { record->fail(std::move(why)); });
}

void report_counts(scheduler_state& s) {
  s.deps.listener->counted(std::exchange(s.tally, {}), s.functions.counts, {leased(s), s.device->wanted()}, s.book->stale_dropped());
}

void notify_callers(scheduler_state& s) {
  const auto ended = std::exchange(s.ended, {});
  for (const auto& tell : ended) tell();
  if (!ended.empty()) s.deps.listener->callers_notified(ended.size());
}

void act(self_pointer self, notify callers) {
  scheduler_state& s = self->state;
  s.decision.due = false;
  const steady_time now = self->clock().now();
  carry_out orders{self, now};
  const admission::room room = s.deps.meter->room_now();
  s.book->set_memory(room.kept, room.results, s.deps.meter->memory());
  for (schedule::job_command& c : s.book->advance(now)) std::visit(orders, c);
  if (orders.begun > 0) s.deps.meter->begun(orders.begun);
  tell_owner(self);
  for (auto& [place, worker] : s.workers) {
    s.deps.leases->set(place, s.book->rows_of(place));
    if (worker.draining && s.book->rows_of(place) == 0) tell_to_stop(s, worker);
  }
  if (s.book->wants_sacrificial() != s.sacrificial) {
    s.sacrificial = s.book->wants_sacrificial();
    self->send(s.supervisor, supervisor::want_sacrificial{s.sacrificial});
  }
  s.deps.meter->decided(leased(s) + s.device->size(), s.book->lacks_memory(), room);
  report_counts(s);
  if (callers == notify::later && !s.ended.empty()) {
    decide_soon(self);
  } else {
    notify_callers(s);
  }
  // Ask the book again every second while jobs wait. No message says that a replacement never comes, that a
  // caller keeps buffers that jobs on the device need, or that a worker has not reported an ended job yet.
  if ((s.book->unsettled() > 0 || s.device->size() > 0) && !std::exchange(s.decision.asked_in_a_second, true))
    self->delayed_send(job_scheduler_actor(self), ask_again, decide_jobs{decide_jobs::reason::second});
  const auto look = s.book->next_look();
  if (look && (!s.decision.at || *look < *s.decision.at)) {
    s.decision.at = look;
    self->delayed_send(job_scheduler_actor(self), *look - now, decide_jobs{decide_jobs::reason::look});
  }
}

}  // namespace penstock::jobs
