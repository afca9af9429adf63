// What advance() decides: which waiting job goes to which worker. Events are handled in job_book.cpp.
#include "runtime/base/check.hpp"
#include "runtime/schedule/job_book.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace penstock::schedule {
namespace {

// A worker may have two leases with open rows: the one it works on, and one queued.
constexpr std::size_t leases_ahead = 2;

// The share of a slot that the arguments of a bundle may take; the rest is for results. A result that does
// not fit the slot needs a memory file, which costs more than a separate lease.
constexpr std::uint64_t arguments_share(std::uint64_t slot_bytes) {
  return slot_bytes / 8;
}

// How long to wait for the replacement of a process that was ended for a fresh job. It normally takes
// milliseconds; after this time another process is replaced instead.
constexpr nanoseconds replacement_patience = std::chrono::seconds(10);

bool is_idle(const auto& worker) {
  return worker.more.open_rows == 0;
}

bool is_loader(const auto& worker) {
  return worker.kind == worker_kind::loader;
}

}  // namespace

std::vector<job_command> job_book::advance(steady_time now) {
  ++round_;
  now_ = now;
  next_look_.reset();
  memory_.lacking = 0;
  if (paused_) {
    // A pause does not count as the absence of a preferred worker.
    for (auto& [index, group] : placed_) group.absent_since.reset();
  }
  if (!paused_ && !jobs_.empty()) {
    loaders_ = 0;
    for (const auto& [index, w] : workers_.all()) loaders_ += w.takes_leases() && is_loader(w) ? 1 : 0;
    lease_probations();
    lease_fresh(now);
    lease_placed(now);
    lease_suspects(now);
    lease_ordinary();
    ask_for_room(now);
    move_work(now);
    look_when_patience_ends(now);
  }
  memory_.settling = 0;
  return std::exchange(outbox_, {});
}

/// Whether the worker may get leases.
bool job_book::works(const worker& w) const {
  return w.takes_leases() && !w.more.ending && !w.more.refreshing;
}

/// Sets when to look again: an idle worker that must avoid a waiting suspect may run it later.
void job_book::look_when_patience_ends(steady_time now) {
  if (suspected_.empty() && fresh_.empty()) return;
  for (const auto& [index, w] : workers_.all()) {
    if (!is_loader(w) || !works(w) || !is_idle(w)) continue;
    for (const restricted_jobs* some : {&suspected_, &fresh_}) {
      const auto blamed = some->first_blamed(index);
      if (blamed && *blamed + settings_.suspect_patience > now)
        look_again(*blamed + settings_.suspect_patience);
    }
  }
}

void job_book::look_again(steady_time when) {
  next_look_ = std::min(next_look_.value_or(when), when);
}

bool job_book::wants_more(const worker& w) const {
  return w.more.order.size() < leases_ahead || w.more.expected < settings_.bundle_goal;
}

nanoseconds job_book::expected_of(const job_entry& e) const {
  return e.function->typical.count() < 0 ? settings_.bundle_goal : e.function->typical;
}

// ---- leases -----------------------------------------------------------------------------------------------

/// Leases the jobs in `scratch_.bundle` to a worker.
void job_book::give(std::uint32_t index) {
  const lease_ref lease = workers_.take(index);
  worker& w = workers_.at(index);
  lease_rows& to = w.slots[lease.slot].use;
  to.rows.clear();
  to.incarnation = w.incarnation;
  to.first_open = to.passed = to.kept = 0;
  to.open = static_cast<std::uint32_t>(scratch_.bundle.size());
  to.wanted.reset();
  to.asked = false;
  lease_jobs order{lease, {}};
  order.rows.reserve(scratch_.bundle.size());
  for (job_entry* e : scratch_.bundle) {
    const job_id job = e->request.job;
    const std::uint32_t attempt = e->blamed ? suspicion_.attempt_of({0, job}) : 1;
    order.rows.push_back({job, attempt, !std::exchange(e->leased_before, true)});
    e->where = whereabouts::leased;
    e->leased = now_;
    e->worker = index;
    e->slot = lease.slot;
    e->row = static_cast<std::uint32_t>(to.rows.size());
    to.rows.push_back({.job = e, .expected = expected_of(*e), .reserved = result_of(*e)});
    w.more.expected += to.rows.back().expected;
    memory_.reserved += to.rows.back().reserved;
  }
  w.more.open_rows += to.open;
  w.more.order.push_back(lease.slot);
  w.more.untouched = false;
  outbox_.emplace_back(std::move(order));
}

void job_book::lease_alone(std::uint32_t index, job_entry& e) {
  dequeue(e);
  scratch_.bundle.assign(1, &e);
  give(index);
}

void job_book::lease_probations() {
  if (!suspicion_.anybody_isolated()) return;
  for (auto& [index, w] : workers_.all()) {
    if (is_loader(w) || !works(w) || !is_idle(w)) continue;
    const auto next = suspicion_.next_probation();
    if (!next) return;
    job_entry& e = jobs_.at(next->who.sample);
    if (!may_begin(e)) return;
    if (e.request.fresh && !w.more.untouched) {
      refresh(index, w);
    } else if (!w.free.empty()) {
      lease_alone(index, e);
      suspicion_.begin_probation(next->who, {{index, w.incarnation}, e.slot, w.slots[e.slot].generation});
    }
  }
}

/// Serves idle workers first, then busy ones, because no worker may ever be idle.
void job_book::lease_suspects(steady_time now) {
  for (const bool ahead : {false, true}) {
    for (auto& [index, w] : workers_.all()) {
      if (suspected_.empty()) return;
      if (!is_loader(w) || !works(w) || w.more.reserved || is_idle(w) == ahead) continue;
      while (!w.free.empty() && (is_idle(w) || (ahead && wants_more(w)))) {
        job_entry* e = first_of(suspected_, index, now);
        if (e == nullptr || !may_begin(*e)) break;
        lease_alone(index, *e);
      }
    }
  }
}

void job_book::lease_ordinary() {
  for (const bool ahead : {false, true}) {
    do {
      if (ordinary_.empty() || !may_begin(ordinary_.next())) return;
      scratch_.takers.clear();
      for (const auto& [index, w] : workers_.all()) {
        if (!is_loader(w) || !works(w) || w.more.reserved || w.free.empty()) continue;
        if (is_idle(w) || (ahead && wants_more(w))) scratch_.takers.push_back(index);
      }
      std::ranges::stable_sort(scratch_.takers, {},
                               [&](std::uint32_t i) { return workers_.at(i).more.expected; });
      for (std::size_t i = 0; i < scratch_.takers.size() && !ordinary_.empty(); ++i) {
        if (!may_begin(ordinary_.next())) return;
        const std::uint64_t left = scratch_.takers.size() - i;
        lease_bundle(scratch_.takers[i], (ordinary_.size() + left - 1) / left);
      }
    } while (ahead && !scratch_.takers.empty());
  }
}

/// Leases a bundle of at most `share` jobs. Memory must allow the first of them to start.
void job_book::lease_bundle(std::uint32_t index, std::uint64_t share) {
  const std::uint64_t rows_max = std::min<std::uint64_t>(share, settings_.rows_max);
  const std::uint64_t arguments_max = arguments_share(settings_.slot_bytes);
  std::uint64_t arguments = 0;
  std::uint64_t results = 0;
  nanoseconds work{0};
  scratch_.bundle.clear();
  while (scratch_.bundle.size() < rows_max && !ordinary_.empty()) {
    job_entry& e = ordinary_.next();
    arguments += e.request.argument_bytes;
    work += expected_of(e);
    const bool table_fits =
        settings_.head_bytes + settings_.row_bytes * (scratch_.bundle.size() + 1) <= settings_.slot_bytes / 4;
    // The result of a job that holds its slot must fit the slot, so such a job gets a slot for itself.
    const bool fits =
        table_fits && arguments <= arguments_max && work <= settings_.bundle_goal && !e.request.holds_slot;
    if (!scratch_.bundle.empty() && (!fits || !may_begin(e))) break;
    dequeue(e);
    scratch_.bundle.push_back(&e);
    memory_.reserved += result_of(e);
    results += result_of(e);
    if (e.request.holds_slot) break;
  }
  memory_.reserved -= results;  // give() reserves this memory again
  give(index);
}

// ---- fresh jobs -------------------------------------------------------------------------------------------

void job_book::lease_fresh(steady_time now) {
  for (auto& [index, w] : workers_.all()) {
    if (fresh_.empty()) break;
    if (!is_loader(w) || !works(w) || !w.more.untouched || w.free.empty()) continue;
    job_entry* e = first_of(fresh_, index, now);
    if (e != nullptr && may_begin(*e)) lease_alone(index, *e);
  }
  prepare_for_fresh(now);
}

/// Replaces an idle process for each fresh job. While other jobs wait, replaces only one at a time, and only
/// if the next job in order is a fresh one. If too few workers are idle, reserves busy ones: they get no more
/// leases until they are idle.
void job_book::prepare_for_fresh(steady_time now) {
  const bool others = !ordinary_.empty() || !suspected_.empty();
  std::uint64_t wanted = fresh_.empty() ? 0 : fresh_.size();
  if (wanted > 0 && others) {
    const bool in_turn = ordinary_.empty() || fresh_.first() < ordinary_.first();
    wanted = in_turn ? 1 : 0;
  }
  std::uint64_t coming = wanted == 0 ? 0 : processes_under_way(now);
  const auto could_serve = [&](std::uint32_t index, const worker& w) {
    return is_loader(w) && works(w) && !w.more.untouched && first_of(fresh_, index, now) != nullptr;
  };
  for (auto& [index, w] : workers_.all()) {
    if (coming >= wanted) break;
    if (!could_serve(index, w) || !is_idle(w)) continue;
    refresh(index, w);
    ++coming;
  }
  for (auto& [index, w] : workers_.all()) {
    if (!w.more.reserved) continue;
    w.more.reserved = coming < wanted && could_serve(index, w);
    coming += w.more.reserved ? 1 : 0;
  }
  while (coming < wanted) {
    worker* best = nullptr;
    for (auto& [index, w] : workers_.all()) {
      if (w.more.reserved || !could_serve(index, w)) continue;
      if (best == nullptr || w.more.expected < best->more.expected) best = &w;
    }
    if (best == nullptr) return;
    best->more.reserved = true;
    ++coming;
  }
}

/// How many workers will soon be able to run a fresh job: they are being replaced, or wait for a free slot.
std::uint64_t job_book::processes_under_way(steady_time now) const {
  return static_cast<std::uint64_t>(std::ranges::count_if(workers_.all(), [&](const auto& entry) {
    const auto& [index, w] = entry;
    if (!is_loader(w) || w.draining) return false;
    if (w.more.refreshing) return w.alive || now - w.more.died < replacement_patience;
    return works(w) && w.more.untouched && first_of(fresh_, index, now) != nullptr;
  }));
}

void job_book::refresh(std::uint32_t index, worker& w) {
  w.more.refreshing = true;
  w.more.reserved = false;
  outbox_.emplace_back(refresh_worker{{index, w.incarnation}});
}

// ---- space ------------------------------------------------------------------------------------------------

/// Whether this worker could start a job if it had a slot.
bool job_book::something_for(std::uint32_t index, const worker& w, steady_time now) {
  const auto begins = [this](const job_entry* e) { return e != nullptr && may_begin(*e); };
  if (!is_loader(w)) {
    const auto next = suspicion_.next_probation();
    return next && may_begin(jobs_.at(next->who.sample));
  }
  const auto placed = placed_.find(index);
  if (placed != placed_.end() && !placed->second.jobs.empty() &&
      may_begin(*placed->second.jobs.begin()->second))
    return true;
  if (!ordinary_.empty() && may_begin(ordinary_.next())) return true;
  return begins(first_of(suspected_, index, now)) || begins(first_of(fresh_, index, now));
}

void job_book::ask_for_room(steady_time now) {
  if (waiting_ == 0) return;
  for (auto& [index, w] : workers_.all()) {
    if (works(w) && (is_idle(w) || wants_more(w)) && something_for(index, w, now))
      ask_for_room(index, w, now);
  }
}

/// Picks the slot with the fewest results among those needed for `room_patience` and not picked before.
void job_book::ask_for_room(std::uint32_t index, worker& w, steady_time now) {
  if (!w.free.empty() || w.more.asked_in == round_) return;
  auto best = w.slots.end();
  std::optional<steady_time> ripe;  // when room_patience ends for the next slot
  for (auto slot = w.slots.begin(); slot != w.slots.end(); ++slot) {
    if (slot->at != stage::held || slot->use.asked) continue;
    if (!slot->use.wanted) slot->use.wanted = now;
    const steady_time over = *slot->use.wanted + settings_.room_patience;
    if (over > now) {
      ripe = std::min(ripe.value_or(over), over);
    } else if (best == w.slots.end() || slot->use.kept < best->use.kept) {
      best = slot;
    }
  }
  if (best == w.slots.end()) {
    if (ripe) look_again(*ripe);
    return;
  }
  best->use.asked = true;
  w.more.asked_in = round_;
  const auto number = static_cast<std::uint32_t>(best - w.slots.begin());
  outbox_.emplace_back(empty_slot{{{index, best->use.incarnation}, number, best->generation}});
}

// ---- moving work ------------------------------------------------------------------------------------------

void job_book::move_work(steady_time now) {
  if (!ordinary_.empty() && memory_.lacking == 0) return;
  scratch_.donors.clear();
  for (const auto& [index, w] : workers_.all()) {
    if (w.alive && is_loader(w) && w.more.open_rows > 1) scratch_.donors.push_back(index);
  }
  std::ranges::stable_sort(scratch_.donors, std::greater(),
                           [&](std::uint32_t i) { return workers_.at(i).more.open_rows; });
  for (auto& [index, w] : workers_.all()) {
    if (scratch_.donors.empty()) return;
    if (!is_loader(w) || !works(w) || w.more.reserved || !is_idle(w)) continue;
    auto donor = scratch_.donors.begin();
    while (donor != scratch_.donors.end()) {
      const takeover in_it = revoke_half_for(index, *donor, now);
      if (in_it == takeover::work) break;
      donor = in_it == takeover::nothing ? scratch_.donors.erase(donor) : std::next(donor);
    }
  }
}

/// Revokes the later half of the rows that `donor` has not started. The
/// donor's first open row counts as started, even if no reading says so yet.
job_book::takeover job_book::revoke_half_for(std::uint32_t idle, std::uint32_t donor, steady_time now) {
  worker& from = workers_.at(donor);
  worker& to = workers_.at(idle);
  std::vector<row_place> movable;
  takeover without = takeover::nothing;
  for (const std::uint32_t number : from.more.order) {
    lease_rows& known = from.slots[number].use;
    for (std::uint32_t i = known.first_open; i < known.rows.size(); ++i) {
      const row& r = known.rows[i];
      const bool first = number == from.more.order.front() && i == known.first_open;
      if (first || r.at != row_state::waiting || r.asked || r.job->request.fresh || r.job->request.place)
        continue;
      const steady_time patient_until = r.job->blamed_at + settings_.suspect_patience;
      if (r.job->blamed && r.job->avoid == idle && loaders_ > 1 && now < patient_until) {
        without = takeover::nothing_for_it;
        look_again(patient_until);
      } else {
        movable.push_back({number, i});
      }
    }
  }
  if (movable.empty()) return without;
  if (to.free.empty()) {
    ask_for_room(idle, to, now);
    return takeover::work;
  }
  const worker_ref who{donor, from.incarnation};
  for (std::size_t i = movable.size() / 2; i < movable.size(); ++i) {
    const auto [number, index] = movable[i];
    auto& slot = from.slots[number];
    row& r = slot.use.rows[index];
    r.asked = true;
    outbox_.emplace_back(revoke_row{{who, number, slot.generation}, index, r.job->request.job});
  }
  return takeover::work;
}

// ---- jobs that only some workers may run ------------------------------------------------------------------

void job_book::restricted_jobs::add(job_entry& e) {
  by_avoided_[e.blamed ? std::optional(e.avoid) : std::nullopt].emplace(e.request.job, &e);
  ++count_;
}

void job_book::restricted_jobs::remove(const job_entry& e) {
  const auto group = by_avoided_.find(e.blamed ? std::optional(e.avoid) : std::nullopt);
  group->second.erase(e.request.job);
  if (group->second.empty()) by_avoided_.erase(group);
  --count_;
}

job_book::job_entry* job_book::restricted_jobs::first_for(std::uint32_t worker, bool only,
                                                          steady_time patient_since) const {
  job_entry* best = nullptr;
  for (const auto& [avoided, jobs] : by_avoided_) {
    const auto may_run = [&](const auto& entry) {
      return only || avoided != worker || entry.second->blamed_at <= patient_since;
    };
    const auto first = std::ranges::find_if(jobs, may_run);
    if (first == jobs.end()) continue;
    job_entry* e = first->second;
    if (best == nullptr || e->request.job < best->request.job) best = e;
  }
  return best;
}

std::optional<steady_time> job_book::restricted_jobs::first_blamed(std::uint32_t worker) const {
  const auto group = by_avoided_.find(worker);
  if (group == by_avoided_.end()) return std::nullopt;
  const auto& first =
      *std::ranges::min_element(group->second, {}, [](const auto& entry) { return entry.second->blamed_at; });
  return first.second->blamed_at;
}

/// A suspect should not run again in the place where it killed a worker, in case the place is the cause. But
/// the other workers may be busy for hours, so it avoids the place only for `suspect_patience`.
job_book::job_entry* job_book::first_of(const restricted_jobs& some, std::uint32_t index,
                                        steady_time now) const {
  return some.first_for(index, loaders_ == 1, now - settings_.suspect_patience);
}

job_id job_book::restricted_jobs::first() const {
  return first_for(0, true, {})->request.job;
}

}  // namespace penstock::schedule
