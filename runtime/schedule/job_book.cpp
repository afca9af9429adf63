// How events change the book's state. Decisions (advance()) are in job_leasing.cpp.
#include "runtime/schedule/job_book.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <utility>

namespace penstock::schedule {
namespace {

using state = row_reading::state;

suspect as_suspect(job_id job) {
  return {0, job};
}

bool is_over(state s) {
  return s == state::finished || s == state::failed || s == state::too_large;
}

/// Whether the row is neither finished nor revoked.
bool is_open(state s) {
  return s == state::waiting || s == state::begun || s == state::unreadable;
}

job_end end_of(state s) {
  if (s == state::failed) return job_end::exception;
  return s == state::too_large ? job_end::too_large : job_end::result;
}

/// Whether a row can have changed from state `known` to state `now`.
bool follows(state known, state now) {
  switch (known) {
    case state::waiting: return now == state::waiting || now == state::begun || is_over(now);
    case state::begun: return now == state::begun || is_over(now);
    case state::revoked: return now == state::revoked || now == state::waiting;
    default: return now == known;
  }
}

const lease_reading* reading_of(const std::vector<lease_reading>& all, const lease_ref& lease) {
  const auto it = std::ranges::find(all, lease, &lease_reading::lease);
  return it == all.end() ? nullptr : &*it;
}

}  // namespace

job_book::job_book(const job_book_settings& settings)
    : settings_(settings), suspicion_(settings.max_attempts) {
  PENSTOCK_CHECK(settings.max_attempts >= 1 && settings.rows_max >= 1, "max_attempts {}, rows_max {}",
                 settings.max_attempts, settings.rows_max);
}

// ---- jobs -------------------------------------------------------------------------------------------------

void job_book::submit(const job_request& request) {
  PENSTOCK_CHECK(request.job > last_job_, "job {} after {}", request.job, last_job_);
  last_job_ = request.job;
  job_entry& e = jobs_[request.job];
  e.request = request;
  e.function = &functions_[request.function];
  enqueue(e);
}

std::optional<revoke_row> job_book::revocable(job_id job) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || it->second.where != whereabouts::leased) return std::nullopt;
  const job_entry& e = it->second;
  const worker& w = *workers_.find(e.worker);
  const auto& slot = w.slots[e.slot];
  if (slot.use.rows[e.row].at != row_state::waiting) return std::nullopt;
  return revoke_row{{{e.worker, w.incarnation}, e.slot, slot.generation}, e.row, job};
}

cancelled job_book::cancel(job_id job, bool only_waiting, bool at_once) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return cancelled::over;
  job_entry& e = it->second;
  if (e.where != whereabouts::leased) {
    dequeue(e);
    settle(e, {.how = job_end::cancelled});
    return cancelled::before_it_began;
  }
  if (only_waiting) return cancelled::running;
  e.ending = true;
  end_holder(e, at_once);
  return cancelled::running;
}

/// Gives the job's worker no more leases and revokes the rows that it has not started, so that killing the
/// worker affects only this job.
void job_book::end_holder(const job_entry& e, bool at_once) {
  worker& w = workers_.at(e.worker);
  if (w.more.ending && (w.more.ending_at_once || !at_once)) return;
  const worker_ref who{e.worker, w.incarnation};
  if (!w.more.ending) revoke_unbegun(who, w);
  w.more.ending = true;
  w.more.ending_at_once |= at_once;
  outbox_.emplace_back(end_worker{who, e.request.job, at_once});
}

void job_book::revoke_unbegun(worker_ref who, worker& w) {
  for (const std::uint32_t number : w.more.order) {
    lease_rows& known = w.slots[number].use;
    for (std::uint32_t i = known.first_open; i < known.rows.size(); ++i) {
      row& r = known.rows[i];
      if (r.at != row_state::waiting || r.job->ending) continue;
      r.asked = true;
      outbox_.emplace_back(revoke_row{{who, number, w.slots[number].generation}, i, r.job->request.job});
    }
  }
}

void job_book::row_revoked(const lease_ref& lease, std::uint32_t index) {
  if (workers_.standing_of(lease) != lease_standing::current) return;
  worker& w = workers_.at(lease.holder.worker);
  lease_rows& known = w.slots[lease.slot].use;
  PENSTOCK_CHECK(index < known.rows.size(), "row {} of {}", index, known.rows.size());
  row& r = known.rows[index];
  if (r.at != row_state::waiting) return;
  job_entry& e = *r.job;
  close_row(r, row_state::revoked, w, known);
  if (w.kind == worker_kind::sacrificial) suspicion_.worker_gone(lease.holder);
  if (e.ending) {
    settle(e, {.how = job_end::cancelled});
  } else {
    enqueue(e);
  }
  end_lease_if_over(lease.holder.worker, lease.slot);
}

void job_book::settle(job_entry& e, settle_job how) {
  const job_id job = e.request.job;
  how.job = job;
  how.attempts = e.runs;
  how.never_leased = !e.leased_before;
  if (e.blamed) {
    if (how.how != job_end::poisoned) {
      auto causes = suspicion_.causes_of(as_suspect(job));
      std::ranges::move(how.causes, std::back_inserter(causes));
      how.causes = std::move(causes);
    }
    suspicion_.forget(as_suspect(job));
  }
  jobs_.erase(job);
  outbox_.emplace_back(std::move(how));
}

void job_book::enqueue(job_entry& e) {
  const job_id job = e.request.job;
  ++waiting_;
  if (e.blamed && suspicion_.isolated(as_suspect(job))) {
    e.where = whereabouts::isolated;  // next_probation() leases it
  } else if (e.request.fresh) {
    e.where = whereabouts::fresh;
    fresh_.add(e);
  } else if (e.request.place) {
    e.where = whereabouts::placed;
    placed_jobs& group = placed_[*e.request.place];
    if (group.jobs.empty()) group.absent_since.reset();  // restart the wait timer
    group.jobs.emplace(job, &e);
  } else if (e.blamed) {
    e.where = whereabouts::suspected;
    suspected_.add(e);
  } else {
    e.where = whereabouts::ordinary;
    waiting_jobs& jobs = ordinary_.of(e);
    jobs.emplace_hint(jobs.end(), job, &e);
  }
}

void job_book::dequeue(job_entry& e) {
  --waiting_;
  switch (e.where) {
    case whereabouts::ordinary: ordinary_.of(e).erase(e.request.job); break;
    case whereabouts::fresh: fresh_.remove(e); break;
    case whereabouts::placed: placed_.at(*e.request.place).jobs.erase(e.request.job); break;
    case whereabouts::suspected: suspected_.remove(e); break;
    case whereabouts::isolated: break;
    case whereabouts::leased: break;
  }
}

// ---- reports of workers -----------------------------------------------------------------------------------

job_arrival job_book::unless_current(lease_standing standing) {
  return standing == lease_standing::unknown ? job_arrival::impossible : job_arrival::late;
}

job_arrival job_book::reported(const lease_reading& so_far) {
  return take_reading(so_far, true);
}

job_arrival job_book::seen(const lease_reading& so_far) {
  return take_reading(so_far, false);
}

job_arrival job_book::take_reading(const lease_reading& so_far, bool passed) {
  const lease_ref& lease = so_far.lease;
  const lease_standing standing = workers_.standing_of(lease);
  if (standing != lease_standing::current) {
    ++stale_dropped_;
    return unless_current(standing);
  }
  worker& w = workers_.at(lease.holder.worker);
  lease_rows& known = w.slots[lease.slot].use;
  if (!plausible(known, so_far)) {
    ++stale_dropped_;
    return job_arrival::impossible;
  }
  absorb(so_far, w, known);
  const auto end = so_far.first + static_cast<std::uint32_t>(so_far.rows.size());
  if (passed) known.passed = std::max(known.passed, end);
  end_lease_if_over(lease.holder.worker, lease.slot);
  return job_arrival::accepted;
}

bool job_book::plausible(const lease_rows& known, const lease_reading& so_far) {
  if (so_far.first > known.rows.size() || so_far.rows.size() > known.rows.size() - so_far.first) return false;
  for (std::size_t i = 0; i < so_far.rows.size(); ++i) {
    if (!follows(known.rows[so_far.first + i].at, so_far.rows[i].at)) return false;
  }
  return true;
}

/// Updates the known rows from a reading. Ignores changes that would go backwards.
void job_book::absorb(const lease_reading& so_far, worker& w, lease_rows& known) {
  const auto end = std::min<std::uint64_t>(known.rows.size(), so_far.first + so_far.rows.size());
  for (std::uint32_t i = std::max(known.first_open, so_far.first); i < end; ++i) {
    row& r = known.rows[i];
    const row_reading& now = so_far.rows[i - so_far.first];
    if (!is_open(r.at)) continue;
    if (is_over(now.at)) {
      row_over(so_far.lease, i, w, known, now);
    } else if (now.at == row_state::begun) {
      if (r.at != row_state::begun) ++r.job->runs;
      r.at = row_state::begun;
      r.begun = now.begun;
    } else if (now.at != row_state::waiting && r.at == row_state::waiting) {
      r.at = row_state::unreadable;
    }
  }
}

void job_book::row_over(const lease_ref& lease, std::uint32_t index, worker& w, lease_rows& known,
                        const row_reading& now) {
  row& r = known.rows[index];
  job_entry& e = *r.job;
  if (r.at != row_state::begun) ++e.runs;
  learn(*e.function, now);
  const std::uint64_t elsewhere = now.at == row_state::finished ? now.bytes_elsewhere : 0;
  memory_.settling += elsewhere;
  const bool keeps = now.keeps_slot || (e.request.holds_slot && now.at == row_state::finished);
  if (keeps) ++known.kept;
  close_row(r, now.at, w, known);
  settle(e, {.how = end_of(now.at),
             .at = settle_job::place{lease, index},
             .keeps_slot = keeps,
             .bytes_elsewhere = elsewhere});
}

void job_book::close_row(row& r, row_state how, worker& w, lease_rows& known) {
  r.at = how;
  r.job = nullptr;
  w.more.expected -= r.expected;
  memory_.reserved -= r.reserved;
  --w.more.open_rows;
  --known.open;
  while (known.first_open < known.rows.size() && !is_open(known.rows[known.first_open].at))
    ++known.first_open;
}

void job_book::end_lease_if_over(std::uint32_t index, std::uint32_t number) {
  worker& w = workers_.at(index);
  lease_rows& known = w.slots[number].use;
  if (known.open > 0) return;
  std::erase(w.more.order, number);
  const bool looked_at = known.passed < known.rows.size() && known.rows.back().at == row_state::revoked;
  if (w.alive && looked_at) return;
  if (known.kept > 0) {
    workers_.lease_over(index, number);
  } else {
    workers_.release(index, number);
  }
}

void job_book::result_gone(const lease_ref& lease) {
  worker* w = workers_.find(lease.holder.worker);
  if (w == nullptr || lease.slot >= w->slots.size()) return;
  auto& slot = w->slots[lease.slot];
  if (slot.at == stage::free || slot.generation != lease.generation || slot.use.kept == 0) return;
  --slot.use.kept;
  if (slot.at == stage::held && slot.use.kept == 0) workers_.release(lease.holder.worker, lease.slot);
}

// ---- workers ----------------------------------------------------------------------------------------------

void job_book::worker_joined(worker_ref who, std::uint32_t slots, bool sacrificial) {
  worker* w = workers_.join(who, slots, sacrificial ? worker_kind::sacrificial : worker_kind::loader);
  if (w != nullptr) w->more = {};
}

void job_book::worker_drains(worker_ref who, bool after_current_batch) {
  worker* w = workers_.living(who);
  if (w == nullptr) return;
  w->draining = true;
  if (after_current_batch) revoke_unbegun(who, *w);
}

/// The row that the worker had started. If no row reads as started and the next row is unreadable, returns
/// the unreadable row: a job that overwrites the table and then dies must still be blamed.
std::optional<job_book::row_place> job_book::row_at_work(const worker& w, worker_ref who,
                                                         const std::vector<lease_reading>& last) const {
  std::optional<row_place> overwritten;
  bool first = true;
  for (const std::uint32_t number : w.more.order) {
    const lease_rows& known = w.slots[number].use;
    const lease_reading* found = reading_of(last, {who, number, w.slots[number].generation});
    for (std::uint32_t i = known.first_open; i < known.rows.size(); ++i) {
      if (!is_open(known.rows[i].at)) continue;
      const bool read = found != nullptr && i >= found->first && i - found->first < found->rows.size();
      const row_state now = read ? found->rows[i - found->first].at : row_state::unreadable;
      if (is_over(now)) continue;
      if (now == row_state::begun || known.rows[i].at == row_state::begun) return row_place{number, i};
      if (std::exchange(first, false) && now != row_state::waiting) overwritten = row_place{number, i};
    }
  }
  return overwritten;
}

std::optional<job_blame> job_book::would_blame(worker_ref who, const std::vector<lease_reading>& last) const {
  const worker* w = workers_.living(who);
  if (w == nullptr || w->more.ending) return std::nullopt;
  const auto at = row_at_work(*w, who, last);
  if (!at) return std::nullopt;
  const job_entry& e = *w->slots[at->slot].use.rows[at->row].job;
  const std::uint32_t attempt = e.blamed ? suspicion_.attempt_of(as_suspect(e.request.job)) : 1;
  return job_blame{e.request.job, attempt, w->kind == worker_kind::sacrificial};
}

std::optional<job_blame> job_book::worker_died(worker_ref who, const std::vector<lease_reading>& last,
                                               const std::string& cause, job_death how, steady_time now) {
  last_losses_ = {};
  worker* w = workers_.living(who);
  if (w == nullptr) return std::nullopt;
  const auto blame = how == job_death::unrelated ? std::nullopt : would_blame(who, last);
  const auto at = row_at_work(*w, who, last);
  w->alive = false;
  w->more.died = now;
  suspicion_.worker_gone(who);
  const last_words words{cause, blame ? how : job_death::unrelated, w->kind == worker_kind::sacrificial, who.worker, now};
  const std::vector<std::uint32_t> order = w->more.order;
  for (const std::uint32_t number : order) {
    const lease_ref lease{who, number, w->slots[number].generation};
    lease_rows& known = w->slots[number].use;
    const lease_reading* found = reading_of(last, lease);
    if (found != nullptr) absorb(*found, *w, known);
    for (std::uint32_t i = known.first_open; i < known.rows.size(); ++i) {
      row& r = known.rows[i];
      if (!is_open(r.at)) continue;
      const bool read = found != nullptr && i >= found->first && i - found->first < found->rows.size();
      if (!read && r.at == row_state::waiting) r.at = row_state::unreadable;
      const row lost = r;
      close_row(r, row_state::revoked, *w, known);
      lose_row(lost, at && at->slot == number && at->row == i, words);
    }
  }
  for (std::uint32_t i = 0; i < w->slots.size(); ++i) {
    if (w->slots[i].at == stage::leased) end_lease_if_over(who.worker, i);
  }
  return blame;
}

/// Decides what happens to a job whose worker is dead: it is retried, blamed, or failed.
void job_book::lose_row(const row& lost, bool at_work, const last_words& words) {
  job_entry& e = *lost.job;
  const bool begun = at_work || lost.at == row_state::begun;
  if (begun && lost.at != row_state::begun) ++e.runs;
  if (e.ending) return settle(e, {.how = job_end::cancelled});
  last_losses_.leases.push_back({e.request.job, e.leased});
  const bool blamed = at_work && words.how != job_death::unrelated;
  // The job timed out only if both hold: its limit had passed, and the worker was killed for that. A late job
  // alone proves nothing, because all processes may have been suspended. The kill alone proves nothing
  // either, because the worker may have begun the next job before it was killed.
  const nanoseconds limit = e.request.limit;
  const bool is_late = limit.count() > 0 && words.now - lost.begun >= limit;
  if (blamed && words.how == job_death::of_its_limit && lost.at == row_state::begun && is_late)
    return settle(e, {.how = job_end::timed_out, .causes = {words.cause}});
  // An unreadable row may have started.
  if (!e.request.idempotent && (begun || lost.at == row_state::unreadable))
    return settle(e, {.how = job_end::worker_lost, .causes = {words.cause}});
  const bool lost_before = e.lost || e.request.lost_before;
  if (blamed) {
    e.blamed = true;
    e.avoid = words.worker;
    e.blamed_at = words.now;
    auto poisoned = suspicion_.blame_death(as_suspect(e.request.job), e.request.job, words.alone,
                                           words.worker, words.cause);
    if (poisoned) return settle(e, {.how = job_end::poisoned, .causes = std::move(poisoned->causes)});
  }
  last_losses_.jobs += begun ? 1 : 0;
  last_losses_.again += begun && lost_before ? 1 : 0;
  e.lost = e.lost || begun;
  enqueue(e);
}

void job_book::cannot_try_alone(const std::string& reason) {
  while (const auto next = suspicion_.next_probation()) {
    std::vector<std::string> causes = suspicion_.causes_of(next->who);
    causes.push_back("could not be tried alone: " + reason);
    job_entry& e = jobs_.at(next->who.sample);
    dequeue(e);
    settle(e, {.how = job_end::poisoned, .causes = std::move(causes)});
  }
}

// ---- queries ----------------------------------------------------------------------------------------------

std::vector<open_lease> job_book::leases_of(worker_ref who) const {
  std::vector<open_lease> all;
  const worker* w = workers_.living(who);
  if (w == nullptr) return all;
  for (const std::uint32_t number : w->more.order) {
    const auto& slot = w->slots[number];
    all.push_back({{who, number, slot.generation},
                   static_cast<std::uint32_t>(slot.use.rows.size()),
                   slot.use.first_open});
  }
  return all;
}

std::uint32_t job_book::rows_of(std::uint32_t index) const noexcept {
  const worker* w = workers_.find(index);
  return w == nullptr ? 0 : w->more.open_rows;
}

}  // namespace penstock::schedule
