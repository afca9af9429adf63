// The session of job_world: carries out the book's commands, and checks that each is allowed.
#include "tests/runtime/schedule/job_world.hpp"

#include <algorithm>

namespace penstock::testing {

using namespace penstock::schedule;

void job_world::come_to_rest() {
  for (int round = 0;; ++round) {
    must(round < 100, "the book does not come to rest");
    see_who_may_leave();
    leasable_ = waiting_ordinary_;
    const auto commands = books_.advance(now_);
    if (commands.empty()) break;
    carry_out(commands);
  }
  const auto look = books_.next_look();
  must(!look || (*look > now_ &&
                 *look <= now_ + std::max({slots_of_4k.room_patience, slots_of_4k.suspect_patience,
                                           slots_of_4k.place_patience, slots_of_4k.first_place_patience})),
       "a look that is due, or too late");
  check_rest();
}

/// Jobs whose patience is over, because their place has taken no work for that long.
void job_world::see_who_may_leave() {
  for (std::uint32_t number = 0; number <= settings_.workers; ++number) {
    auto& since = absent_since_[number];
    since = takes_work(number) ? std::nullopt : std::optional(since.value_or(now_));
    if (!since || now_ - *since < slots_of_4k.place_patience) continue;
    for (job_state& job : jobs_) job.may_leave |= job.waiting && job.request.place == number;
  }
}

void job_world::carry_out(const std::vector<job_command>& commands) {
  for (const job_command& c : commands) std::visit([this](const auto& order) { take(order); }, c);
}

// ---- leases -----------------------------------------------------------------------------------------------

void job_world::take(const lease_jobs& order) {
  const auto [holder, number, generation] = order.lease;
  place& p = places_.at(holder.worker);
  check_lease(order, p);
  table& t = memory_[{holder.worker, number}];
  must(t.kept == 0, "a slot that contains results is leased");
  must(generation > t.lease.generation, "a generation was used before");
  t = {};
  t.lease = order.lease;
  for (const leased_job& row : order.rows) {
    check_row(order, row, p);
    job_state& job = at(row.job);
    job.waiting = false;
    job.leased_before = true;
    waiting_ordinary_.erase(row.job);
    leasable_.erase(row.job);
    t.rows.push_back({.job = row.job});
  }
  tally_.bundles += order.rows.size() > 1 ? 1 : 0;
  tally_.probations += holder.worker == sacrificial_place ? 1 : 0;
  tally_.ahead += p.leases.empty() ? 0 : 1;
  tally_.fresh += at(order.rows[0].job).request.fresh ? 1 : 0;
  if (const auto wanted = at(order.rows[0].job).request.place)
    ++(*wanted == holder.worker ? tally_.placed : tally_.elsewhere);
  p.leases.push_back(order.lease);
  ++p.given;
}

void job_world::check_lease(const lease_jobs& order, const place& p) {
  const std::uint32_t number = order.lease.holder.worker;
  const std::uint32_t slots = number == sacrificial_place ? 1 : settings_.slots;
  must(!paused_, "a lease while the book is paused");
  must(p.alive && p.incarnation == order.lease.holder.incarnation, "a lease for a dead worker");
  must(!p.draining && !p.doomed && !p.refreshing, "a lease for a worker that will be ended");
  must(order.lease.slot < slots, "a slot that does not exist");
  must(std::ranges::none_of(p.leases, [&](const lease_ref& l) { return l.slot == order.lease.slot; }),
       "a slot is leased that its worker still looks at");
  must(!order.rows.empty() && order.rows.size() <= settings_.rows_max, "a lease without rows, or with too many");
  if (order.rows.size() == 1) return;
  must(
      std::ranges::none_of(order.rows, [&](const leased_job& row) { return at(row.job).request.holds_slot; }),
      "a job that wants its result in the slot shares it");
  std::uint64_t bytes = slots_of_4k.head_bytes;
  for (const leased_job& row : order.rows)
    bytes += slots_of_4k.row_bytes + at(row.job).request.argument_bytes;
  must(bytes <= slots_of_4k.slot_bytes / 4 * 3, "a bundle leaves no room for results");
}

void job_world::check_row(const lease_jobs& order, const leased_job& row, const place& p) {
  const std::uint32_t number = order.lease.holder.worker;
  const job_state& job = at(row.job);
  must(job.waiting && !job.settled, "a job that does not wait is leased");
  must(row.attempt == 1 + job.blamed, "an attempt has the wrong number");
  must(row.first == !job.leased_before, "the flag `first` of a row is wrong");
  if (is_ordinary(job)) {
    must(number != sacrificial_place, "a job is alone without a reason");
    must(!leasable_.empty() && *leasable_.begin() == row.job, "a later job overtakes an earlier one");
    return;
  }
  if (job.request.place && !job.request.fresh && number != sacrificial_place) {
    must(*job.request.place == number || job.may_leave, "a job runs elsewhere although its worker is ready");
    if (*job.request.place == number || job.blamed == 0) return;
  }
  must(order.rows.size() == 1, "a fresh job or a suspect shares its lease");
  must(is_isolated(job) == (number == sacrificial_place), "the wrong kind of worker for a suspect");
  must(!job.request.fresh || p.given == 0, "a fresh job for a process that has had a lease");
  const bool avoidable = number != sacrificial_place && anyone_but(number);
  const bool patient = now_ < job.died_at + slots_of_4k.suspect_patience;
  must(job.died_of_it != number || !avoidable || !patient, "a suspect runs where it has killed");
}

bool job_world::is_isolated(const job_state& job) const {
  return job.blamed > 0 && job.blamed + 1 >= settings_.max_attempts;
}

bool job_world::anyone_but(std::uint32_t number) const {
  return std::ranges::any_of(places_, [&](const auto& entry) {
    const auto& [other, p] = entry;
    return other != number && other != sacrificial_place && p.alive && !p.draining;
  });
}

// ---- the other commands -----------------------------------------------------------------------------------

bool job_world::revoke(const lease_ref& lease, std::uint32_t row) {
  const auto it = memory_.find({lease.holder.worker, lease.slot});
  if (it == memory_.end() || it->second.lease != lease || it->second.rows[row].at != row_at::waiting)
    return false;
  it->second.rows[row].at = row_at::revoked;
  const place& p = places_.at(lease.holder.worker);
  if (!p.alive || p.incarnation != lease.holder.incarnation) return true;  // the job waits anyway
  job_state& job = at(it->second.rows[row].job);
  job.waiting = true;
  if (is_ordinary(job)) waiting_ordinary_.insert(job.request.job);
  return true;
}

void job_world::take(const revoke_row& order) {
  if (!revoke(order.lease, order.row)) return;
  ++tally_.revoked;
  books_.row_revoked(order.lease, order.row);
}

void job_world::take(const end_worker& order) {
  ++tally_.ended;
  place& p = places_.at(order.who.worker);
  must(at(order.job).ending, "a worker is ended because of a job that was not cancelled");
  if (p.incarnation == order.who.incarnation) p.doomed = p.alive;
}

void job_world::take(const refresh_worker& order) {
  place& p = places_.at(order.who.worker);
  must(p.alive && p.incarnation == order.who.incarnation, "a worker that has ended is replaced");
  must(!p.refreshing && p.given > 0, "a worker is replaced twice, or without having run a job");
  must(books_.rows_of(order.who.worker) == 0, "a worker that has work is replaced");
  must(std::ranges::any_of(jobs_, [](const job_state& job) { return job.waiting && job.request.fresh; }),
       "a worker is replaced and no fresh job waits");
  p.refreshing = true;
  ++tally_.refreshed;
}

void job_world::take(const empty_slot& order) {
  table& t = memory_.at({order.lease.holder.worker, order.lease.slot});
  must(t.lease == order.lease && t.kept > 0, "an order to empty an empty slot");
  must(!std::exchange(t.asked_empty, true), "a second order to empty a slot");
  const std::uint32_t number = order.lease.holder.worker;
  must(!has_free_slot(number) || has_untold_news(number),
       "a slot is being emptied although another one is free");
  ++tally_.emptied;
  for (; t.kept > t.pinned; --t.kept) books_.result_gone(order.lease);
}

// ---- ends -------------------------------------------------------------------------------------------------

void job_world::take(const settle_job& end) {
  job_state& job = at(end.job);
  must(!job.settled, "a job is settled twice");
  job.settled = true;
  ++tally_.ends[end.how];
  must(end.attempts == job.begun, "the number of runs is wrong");
  must(end.never_leased == !job.leased_before, "the flag `never_leased` is wrong");
  must(!job.running, "a running job is settled");
  check_end(end, job);
  if (end.how == job_end::result || end.how == job_end::exception || end.how == job_end::too_large)
    check_result(end, job);
  job.waiting = false;
  waiting_ordinary_.erase(end.job);
}

void job_world::check_end(const settle_job& end, const job_state& job) {
  std::size_t causes = job.blamed;
  if (job.fate) {
    must(end.how == *job.fate, "a death has led to the wrong outcome of a job");
    if (end.how == job_end::worker_lost || end.how == job_end::timed_out) ++causes;
  } else if (end.how == job_end::poisoned) {
    must(probations_given_up_ && is_isolated(job), "a job that can be retried is poisoned");
    ++causes;
  } else if (end.how == job_end::cancelled) {
    must(job.cancelled, "a job is cancelled without a request");
  } else {
    must(end.at.has_value(), "a job has ended by itself without a row");
  }
  must(end.causes.size() == causes, "a job has too few or too many causes of death");
  const bool kills = job.what == kind::killer || job.what == kind::overwriter;
  const bool killed = kills || (job.what == kind::killer_once && settings_.max_attempts <= 2);
  must(end.how != job_end::poisoned || killed || settings_.outside_kills_blame, "a harmless job is poisoned");
  must(end.how != job_end::result || !kills, "a job that always kills has a result");
}

void job_world::check_result(const settle_job& end, const job_state& job) {
  const auto& [lease, row] = *end.at;
  table& t = memory_.at({lease.holder.worker, lease.slot});
  must(t.lease == lease, "a result is in a slot that was leased again");
  const cell& c = t.rows.at(row);
  const row_at expected = end.how == job_end::result      ? row_at::finished
                          : end.how == job_end::exception ? row_at::failed
                                                          : row_at::too_large;
  must(c.job == end.job && c.at == expected, "the wrong row is reported as the job's result");
  must(c.result == result_of(end.job), "the result is not the job's");
  must(end.keeps_slot == ((job.keeps || job.request.holds_slot) && c.at == row_at::finished),
       "a result is kept, or not");
  if (!end.keeps_slot) return;
  ++t.kept;
  // A result whose bytes are in use cannot be copied out, but at least one slot of each place is always free of such results.
  std::uint32_t others = 0;
  for (const auto& [where, other] : memory_)
    others += where.first == lease.holder.worker && &other != &t && other.pinned > 0 ? 1 : 0;
  if (end.job % 3 == 0 && others + 1 < settings_.slots && lease.holder.worker != sacrificial_place)
    ++t.pinned;
}

// ---- messages of workers ----------------------------------------------------------------------------------

lease_reading job_world::read(const lease_ref& lease, std::uint32_t first, std::uint32_t end) const {
  lease_reading reading{lease, {}, first};
  const auto it = memory_.find({lease.holder.worker, lease.slot});
  for (std::uint32_t i = first; i < end; ++i) {
    if (it == memory_.end() || it->second.lease != lease || i >= it->second.rows.size() ||
        it->second.rows[i].overwritten) {
      reading.rows.push_back({row_at::unreadable});
      continue;
    }
    const cell& c = it->second.rows[i];
    const job_state& job = at(c.job);
    reading.rows.push_back(
        {c.at, job.keeps && c.at == row_at::finished, c.begun, time_of(job.request.function)});
  }
  return reading;
}

void job_world::deliver(std::uint32_t pick) {
  if (in_transit_.empty()) return;
  // Messages of one worker stay in order; messages of different workers need not.
  const worker_ref sender = in_transit_[pick % in_transit_.size()].lease.holder;
  const auto first =
      std::ranges::find_if(in_transit_, [&](const message& m) { return m.lease.holder == sender; });
  const message m = *first;
  in_transit_.erase(first);
  const job_arrival how = books_.reported(read(m.lease, 0, m.passed));
  const place& p = places_.at(sender.worker);
  const bool living = p.alive && p.incarnation == sender.incarnation;
  must(how != job_arrival::impossible, "a true report is called impossible");
  tally_.late += how == job_arrival::late ? 1 : 0;
  must(living || how == job_arrival::late, "a report of a dead worker is accepted");
  heard_.push_back(m);
  if (heard_.size() > 8) heard_.pop_front();
}

void job_world::say_it_late(std::uint32_t pick) {
  if (heard_.empty()) return;
  const message& m = heard_[pick % heard_.size()];
  const place& p = places_.at(m.lease.holder.worker);
  if (p.alive && p.incarnation == m.lease.holder.incarnation) return;
  const std::uint64_t before = books_.stale_dropped();
  must(books_.reported(read(m.lease, 0, m.passed)) == job_arrival::late, "a late report is accepted");
  must(books_.stale_dropped() == before + 1, "a late report is not counted");
}

void job_world::say_what_cannot_be(std::uint32_t number, std::uint32_t pick) {
  const place& p = places_.at(number);
  if (!p.alive) return;
  const worker_ref who{number, p.incarnation};
  const auto open = books_.leases_of(who);
  lease_reading wrong{{who, settings_.slots + 3, 1}, {{row_at::finished}}};
  if (pick / 8 % 4 == 1) {
    const auto it = memory_.find({number, 0});
    wrong.lease = {who, 0, it == memory_.end() ? 1 : it->second.lease.generation + 1};
  } else if (pick / 8 % 4 == 2 && !open.empty()) {
    wrong = read(open[0].lease, 0, open[0].rows);
    wrong.rows.push_back({row_at::finished});
  } else if (pick / 8 % 4 == 3 && !open.empty() && open[0].settled > 0) {
    wrong = read(open[0].lease, 0, 1);
    wrong.rows[0].at = wrong.rows[0].at == row_at::revoked ? row_at::begun : row_at::waiting;
  }
  must(books_.reported(wrong) == job_arrival::impossible, "an impossible report is accepted");
  die(number, job_death::unrelated);  // the worker is fenced
}

void job_world::watch(std::uint32_t number) {
  const cell* running = places_.at(number).alive ? running_on(number) : nullptr;
  if (running == nullptr) return;
  const nanoseconds limit = at(running->job).request.limit;
  if (limit > 0ns && now_ - running->begun >= limit) die(number, job_death::of_its_limit);
}

void job_world::drain(std::uint32_t number, bool after_current_batch) {
  place& p = places_.at(number);
  if (!p.alive) return;
  p.draining = true;
  books_.worker_drains({number, p.incarnation}, after_current_batch);
}

bool job_world::takes_work(std::uint32_t number) const {
  const auto it = places_.find(number);
  return it != places_.end() && it->second.alive && !it->second.draining && !it->second.doomed &&
         !it->second.refreshing;
}

// ---- at rest ----------------------------------------------------------------------------------------------

void job_world::check_rest() const {
  if (paused_) return;
  for (const auto& [number, p] : places_) {
    if (p.alive && !p.draining && !p.doomed && !p.refreshing && idle(number, p)) check_idle(number, p);
  }
}

/// Whether the place is idle, and the book agrees.
bool job_world::idle(std::uint32_t number, const place& p) const {
  return p.leases.empty() && books_.rows_of(number) == 0 && !has_untold_news(number);
}

bool job_world::has_untold_news(std::uint32_t number) const {
  const worker_ref who{number, places_.at(number).incarnation};
  return std::ranges::any_of(in_transit_, [&](const message& m) { return m.lease.holder == who; });
}

bool job_world::has_free_slot(std::uint32_t number) const {
  const place& p = places_.at(number);
  const std::uint32_t slots = number == sacrificial_place ? 1 : settings_.slots;
  std::uint32_t busy = static_cast<std::uint32_t>(p.leases.size());
  for (const auto& [where, t] : memory_) {
    const bool leased = std::ranges::find(p.leases, t.lease) != p.leases.end();
    busy += where.first == number && t.kept > 0 && !leased ? 1 : 0;
  }
  return busy < slots;
}

void job_world::check_idle(std::uint32_t number, const place& p) const {
  const bool alone = number == sacrificial_place;
  for (const job_state& job : jobs_) {
    if (!job.waiting || job.settled || is_isolated(job) != alone) continue;
    const bool elsewhere = job.request.place && *job.request.place != number && !alone && !job.request.fresh;
    // A job's patience starts when it is submitted or its worker leaves, whichever is later. The job waits for a worker that is back.
    if (elsewhere && (!job.may_leave || books_.next_look() || takes_work(*job.request.place))) continue;
    must(has_free_slot(number) || books_.next_look(),
         "a worker is blocked by results that could be copied");
    if (!has_free_slot(number)) return;
    const bool patient = now_ < job.died_at + slots_of_4k.suspect_patience;
    const bool avoids = !alone && job.died_of_it == number && anyone_but(number) && patient;
    const bool wants_other = job.request.fresh && p.given > 0;
    must(avoids || wants_other, "a job waits although a worker that may run it is free");
    must(!alone, "a fresh suspect waits, but no process is replaced for it");
  }
  if (alone || !has_free_slot(number)) return;
  for (const auto& [other, busy] : places_) {
    if (other == number || other == sacrificial_place || !busy.alive) continue;
    int movable = 0;
    for (const lease_ref& lease : busy.leases) {
      for (const cell& c : memory_.at({other, lease.slot}).rows)
        movable += c.at == row_at::waiting && is_ordinary(at(c.job)) ? 1 : 0;
    }
    must(movable <= 1, "a worker is idle while another one has jobs ahead");
  }
}

}  // namespace penstock::testing
