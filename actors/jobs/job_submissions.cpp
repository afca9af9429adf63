// Handles submitted and cancelled jobs.
#include "actors/jobs/job_scheduler_state.hpp"
#include "actors/jobs/job_texts.hpp"

#include <algorithm>

namespace penstock::jobs {
namespace {

/// Cancels a job that the book knows; returns whether it will never start. Reads its slot first: revokes a
/// row that has not started, and spares the worker if the row has already ended.
bool end_known(scheduler_state& s, const end_job& order) {
  if (const auto row = s.book->revocable(order.job)) {
    const auto place = s.places.find(row->lease.holder.worker);
    if (place != s.places.end() && place->second.revoke(row->lease, row->row)) {
      s.book->row_revoked(row->lease, row->row);
    } else if (place != s.places.end()) {
      static_cast<void>(s.book->seen(place->second.read(row->lease, 0, row->row + 1)));
    }
  }
  if (!order.only_waiting) {
    if (const auto open = s.jobs.find(order.job); open != s.jobs.end()) open->second.ending = true;
    if (auto ended = s.device->cancel(order.job)) {
      end_at_device(s, std::move(*ended));
      return false;
    }
  }
  return s.book->cancel(order.job, order.only_waiting, order.at_once) == schedule::cancelled::before_it_began;
}

}  // namespace

void enter(scheduler_state& s, const std::shared_ptr<job_record>& record) {
  if (s.cancelled) {
    s.deps.meter->begun(1);
    return fail_job(s, record, {job_status::cancelled, {}, s.cancelled->message, {}, {}, 0});
  }
  if (!s.functions.known) return s.functions.early.push_back(record);
  const auto function = s.functions.indexes.find(record->function());
  if (function == s.functions.indexes.end()) {
    s.deps.meter->begun(1);
    return fail_job(s, record,
                    {job_status::exception,
                     "unknown_function",
                     fmt::format("the worker program has no function '{}'; it has: {}", record->function(),
                                 names_text(s.functions.indexes)),
                     {},
                     {},
                     0});
  }
  const std::uint64_t bytes = record->argument().size();
  const bool alone = place_slots::travels_alone(bytes, s.deps.shape.slot_bytes);
  if (record->rules().stays_there) s.stay_there.insert(record->number());
  s.jobs[record->number()] = {record, function->second, false};
  ++s.functions.counts[function->second].waiting;
  const job_rules& rules = record->rules();
  s.book->submit({record->number(), function->second, alone ? s.deps.shape.slot_bytes : bytes, rules.limit,
                  rules.idempotent, rules.fresh, rules.to_device, rules.urgent, rules.place, rules.lost_before});
}

void learn_functions(scheduler_state& s, const functions_known& news) {
  for (std::uint32_t i = 0; i < news.names.size(); ++i) s.functions.indexes.emplace(news.names[i], i);
  s.functions.known = true;
  s.functions.counts.resize(news.names.size());
  s.deps.listener->functions_named(news.names);
  for (const auto& record : std::exchange(s.functions.early, {})) enter(s, record);
}

void end_one(scheduler_state& s, const end_job& order) {
  bool prevented = false;
  const auto early = std::ranges::find(s.functions.early, order.job, [](const auto& r) { return r->number(); });
  if (early != s.functions.early.end()) {
    const std::shared_ptr<job_record> record = *early;
    s.functions.early.erase(early);
    s.deps.meter->begun(1);
    fail_job(s, record, {job_status::cancelled, {}, "it was cancelled before it started", {}, {}, 0});
    prevented = true;
  } else {
    prevented = end_known(s, order);
  }
  if (order.prevented) order.prevented->set_value(prevented);
}

void end_all(scheduler_state& s, const failure& why) {
  s.cancelled = why;
  for (const auto& record : std::exchange(s.functions.early, {})) enter(s, record);
  // The book makes no more decisions. Waiting callers are notified now, and the supervisor ends the workers.
  s.book->set_paused(true);
  for (const auto& [number, job] : std::exchange(s.jobs, {})) {
    if (!job.leased) s.deps.meter->begun(1);
    note_end(s, job, job_status::cancelled);
    fail_job(s, job.record, {job_status::cancelled, {}, why.message, {}, {}, job.record->attempts()});
  }
  end_at_device(s, s.device->cancel_all(why.message));
}

}  // namespace penstock::jobs
