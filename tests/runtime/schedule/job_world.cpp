#include "tests/runtime/schedule/job_world.hpp"

#include <algorithm>

namespace penstock::testing {
namespace {

using namespace penstock::schedule;

constexpr std::uint32_t places_max = 7;
constexpr nanoseconds step_time = 10ms;

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

job_book_settings settings_of(const job_world_settings& world) {
  job_book_settings book = job_world::slots_of_4k;
  book.max_attempts = world.max_attempts;
  book.rows_max = world.rows_max;
  return book;
}

}  // namespace

std::uint64_t result_of(job_id job) {
  return mixed(job);
}

nanoseconds time_of(std::uint32_t function) {
  constexpr nanoseconds times[] = {10us, 400us, 5ms};
  return times[function];
}

job_world::job_world(const job_world_settings& settings, job_world_tally& tally)
    : settings_(settings), tally_(tally), books_(settings_of(settings)) {
  for (std::uint32_t w = 0; w < settings_.workers; ++w) places_[w];
  places_[sacrificial_place];
}

void job_world::perform(step<job_act> s) {
  if (const auto look = books_.next_look(); look && s.pick % 2 == 0) {
    now_ = *look;
    come_to_rest();
  }
  now_ += step_time;
  switch (s.what) {
    case job_act::submit: submit(); break;
    case job_act::work: work(pick_place(s.pick), s.pick % 3 == 0); break;
    case job_act::deliver: deliver(s.pick); break;
    case job_act::start: start(pick_place(s.pick)); break;
    case job_act::kill: die(pick_place(s.pick), settings_.outside_kills_blame ? job_death::of_the_job : job_death::unrelated); break;
    case job_act::blameless_kill: die(pick_place(s.pick), job_death::unrelated); break;
    case job_act::watch: watch(pick_place(s.pick)); break;
    case job_act::cancel: cancel(s.pick); break;
    case job_act::release: release(s.pick); break;
    case job_act::drain: drain(pick_place(s.pick), s.pick % 2 == 0); break;
    case job_act::impossible: say_what_cannot_be(pick_place(s.pick), s.pick); break;
    case job_act::late: say_it_late(s.pick); break;
    case job_act::pause: books_.set_paused(paused_ = s.pick % 4 == 0); break;
    case job_act::give_probations_up:
      probations_given_up_ = true;
      books_.cannot_try_alone("no worker for it");
      break;
    case job_act::add_place:
      if (places_.size() <= places_max) places_[static_cast<std::uint32_t>(places_.size()) - 1];
      break;
    case job_act::count: break;
  }
  come_to_rest();
}

void job_world::finish() {
  books_.set_paused(paused_ = false);
  const std::uint64_t bound = 200 + jobs_.size() * 40;
  for (std::uint64_t i = 0; books_.unsettled() > 0; ++i) {
    must(i < bound, "deadlock: no event is left");
    now_ += 1s;
    for (auto& [number, p] : places_) {
      const bool to_go = p.doomed || p.refreshing || (p.draining && p.leases.empty());
      if (p.alive && to_go) die(number, job_death::unrelated);
      if (settings_.deaths_unreported && to_go) continue;
      start(number);
    }
    come_to_rest();
    for (auto& [number, p] : places_) {
      watch(number);
      work(number, true);
    }
    while (!in_transit_.empty()) deliver(0);
    come_to_rest();
  }
  for (const job_state& job : jobs_) must(job.settled, "a job was never settled");
  for (const auto& [number, p] : places_) must(books_.rows_of(number) == 0, "rows without a job are left");
  must(books_.waiting() == 0 && !books_.wants_sacrificial() && books_.suspected() == 0,
       "something is left of jobs that are settled");
}

// ---- callers ----------------------------------------------------------------------------------------------

void job_world::submit() {
  if (jobs_.size() >= settings_.jobs) return;
  job_state job;
  const job_id number = jobs_.size() + 1;
  std::uint64_t luck = mixed(number * 977 + settings_.salt);
  const auto below = [&luck](std::uint64_t bound) {
    const std::uint64_t drawn = luck % bound;
    luck = mixed(luck + 1);
    return drawn;
  };
  job.request = {.job = number, .function = static_cast<std::uint32_t>(below(3))};
  job.request.argument_bytes = below(4) == 0 ? 64 * below(60) : 64;
  if (below(100) < settings_.odd_jobs) job.what = static_cast<kind>(1 + below(6));
  job.request.fresh = below(100) < settings_.fresh_jobs;
  job.request.idempotent = below(4) != 0;
  // Sometimes a place without a worker.
  if (below(100) < settings_.placed_jobs)
    job.request.place = static_cast<std::uint32_t>(below(settings_.workers + 1));
  if (job.what == kind::hanging || below(6) == 0)
    job.request.limit = step_time * static_cast<int>(1 + below(8));
  job.keeps = below(4) == 0;
  job.request.holds_slot = below(8) == 0;
  jobs_.push_back(job);
  books_.submit(job.request);
  if (is_ordinary(job)) waiting_ordinary_.insert(number);
}

void job_world::cancel(std::uint32_t pick) {
  if (jobs_.empty()) return;
  job_id number = 1 + pick % jobs_.size();
  // Looks at only one in a hundred settled jobs, because most jobs are settled.
  for (std::size_t i = 0; i < jobs_.size() && at(number).settled && pick % 100 != 0; ++i)
    number = 1 + number % jobs_.size();
  job_state& job = at(number);
  const bool only_waiting = pick / 7 % 3 == 0;
  if (const auto row = books_.revocable(number)) {
    must(row->job == number, "another job's row is revocable");
    if (revoke(row->lease, row->row)) {
      books_.row_revoked(row->lease, row->row);
    } else if (pick / 3 % 2 == 0) {
      look_at(row->lease);
    }
  }
  const bool waited = job.waiting;
  switch (books_.cancel(number, only_waiting, pick % 5 == 0)) {
    case schedule::cancelled::before_it_began:
      must(waited && !job.settled, "a job that does not wait was cancelled like a waiting one");
      job.cancelled = true;
      job.waiting = false;
      waiting_ordinary_.erase(number);
      break;
    case schedule::cancelled::running:
      must(!waited && !job.settled, "a job that does not run was cancelled like a running one");
      job.ending |= !only_waiting;
      break;
    case schedule::cancelled::over:
      must(!waited && !job.running, "a job that waits or runs is reported as ended");
      break;
  }
}

/// The session reads a table without a report from its worker.
void job_world::look_at(const lease_ref& lease) {
  table& t = memory_.at({lease.holder.worker, lease.slot});
  for (cell& c : t.rows) c.seen |= c.at == row_at::begun;
  const auto rows = static_cast<std::uint32_t>(t.rows.size());
  must(books_.seen(read(lease, 0, rows)) == job_arrival::accepted, "a reading was not accepted");
}

void job_world::release(std::uint32_t pick) {
  if (memory_.empty()) return;
  table& t = std::next(memory_.begin(), static_cast<std::ptrdiff_t>(pick % memory_.size()))->second;
  if (t.kept == 0) return books_.result_gone(t.lease);  // late, or about a result that never existed
  --t.kept;
  t.pinned = std::min(t.pinned, t.kept);
  books_.result_gone(t.lease);
}

// ---- workers ----------------------------------------------------------------------------------------------

std::uint32_t job_world::pick_place(std::uint32_t pick) const {
  return std::next(places_.begin(), static_cast<std::ptrdiff_t>(pick % places_.size()))->first;
}

void job_world::start(std::uint32_t number) {
  place& p = places_[number];
  if (p.alive || (number == sacrificial_place && !books_.wants_sacrificial())) return;
  const std::uint32_t incarnation = p.incarnation + 1;
  p = {};
  p.incarnation = incarnation;
  p.alive = true;
  books_.worker_joined({number, p.incarnation}, number == sacrificial_place ? 1 : settings_.slots,
                       number == sacrificial_place);
}

/// One step: a row is started, finished or skipped.
void job_world::work(std::uint32_t number, bool tells) {
  place& p = places_[number];
  if (!p.alive || p.leases.empty()) return;
  const lease_ref lease = p.leases.front();
  table& t = memory_.at({number, lease.slot});
  must(t.lease == lease, "a table was overwritten while its worker read it");
  cell& c = t.rows[p.next_row];
  if (c.at == row_at::waiting) return begin(number, c);
  if (c.at == row_at::begun) {
    finish_row(number, c);
    if (!p.alive || c.at == row_at::begun) return;
  }
  ++p.next_row;
  const bool last = p.next_row == t.rows.size();
  if (tells || last) in_transit_.push_back({lease, p.next_row});
  if (!last) return;
  p.leases.pop_front();
  p.next_row = 0;
}

void job_world::begin(std::uint32_t number, cell& c) {
  place& p = places_[number];
  job_state& job = at(c.job);
  must(!job.settled && !job.fate && !job.cancelled, "a job starts that has ended");
  must(!job.running, "a job runs twice at the same time");
  must(job.request.idempotent || job.begun == 0, "a job that is not idempotent is started twice");
  must(!job.request.fresh || p.begun == 0, "a fresh job starts in a process that has run another job");
  c.at = row_at::begun;
  c.begun = now_;
  job.running = true;
  ++job.begun;
  ++p.begun;
}

void job_world::finish_row(std::uint32_t number, cell& c) {
  job_state& job = at(c.job);
  switch (job.what) {
    case kind::killer: return die(number, job_death::of_the_job);
    case kind::killer_once:
      if (job.blamed == 0) return die(number, job_death::of_the_job);
      break;
    case kind::overwriter: {
      place& p = places_[number];
      table& t = memory_.at({number, p.leases.front().slot});
      for (std::uint32_t i = p.next_row; i < t.rows.size(); ++i) t.rows[i].overwritten = true;
      return die(number, job_death::of_the_job);
    }
    case kind::hanging: return;  // until a timeout
    case kind::plain:
    case kind::thrower:
    case kind::too_large: break;
  }
  job.running = false;
  c.result = result_of(c.job);
  c.at = job.what == kind::thrower     ? row_at::failed
         : job.what == kind::too_large ? row_at::too_large
                                       : row_at::finished;
}

job_world::cell* job_world::running_on(std::uint32_t number) {
  place& p = places_[number];
  if (p.leases.empty()) return nullptr;
  cell& c = memory_.at({number, p.leases.front().slot}).rows[p.next_row];
  return c.at == row_at::begun ? &c : nullptr;
}

void job_world::die(std::uint32_t number, job_death how) {
  place& p = places_[number];
  if (!p.alive) return;
  if (settings_.deaths_unreported) {
    p.leases.clear();
    p.next_row = 0;
    return;
  }
  const worker_ref who{number, p.incarnation};
  std::vector<lease_reading> last;
  for (const open_lease& open : books_.leases_of(who))
    last.push_back(read(open.lease, last.size() % 2 == 0 ? open.settled : 0, open.rows));
  const cell* running = running_on(number);
  p.alive = false;
  const bool blamed = how != job_death::unrelated && running != nullptr && !p.doomed;
  const auto foreseen = books_.would_blame(who, last);
  const auto blame = books_.worker_died(who, last, "SIGSEGV", how, now_);
  must(blame.has_value() == blamed, "a death was blamed on no sample, or on one without a reason");
  if (blame) {
    ++tally_.blamed;
    must(foreseen && foreseen->job == blame->job, "the wrong job was blamed");
    must(blame->job == running->job, "a death was blamed on the wrong job");
    must(blame->attempt == 1 + at(running->job).blamed, "a death was blamed on the wrong attempt");
    must(blame->alone == (number == sacrificial_place), "the flag `alone` is wrong");
  }
  for (const lease_ref& lease : p.leases) {
    for (cell& c : memory_.at({number, lease.slot}).rows) {
      if (c.at == row_at::waiting || c.at == row_at::begun) lose(c, number, &c == running, blamed ? how : job_death::unrelated);
    }
  }
  p.leases.clear();
  p.next_row = 0;
}

/// The expected outcome of a job whose worker has died.
void job_world::lose(cell& c, std::uint32_t number, bool was_running, job_death how) {
  job_state& job = at(c.job);
  job.running = false;
  const nanoseconds limit = job.request.limit;
  const bool readable = !c.overwritten || c.seen;
  if (job.ending) {
    job.fate = job_end::cancelled;
  } else if (was_running && how == job_death::of_its_limit && readable && limit > 0ns && now_ - c.begun >= limit) {
    job.fate = job_end::timed_out;
  } else if (!job.request.idempotent && (was_running || !readable)) {
    job.fate = job_end::worker_lost;
  } else if (was_running && how != job_death::unrelated) {
    job.died_of_it = number;
    job.died_at = now_;
    if (++job.blamed == settings_.max_attempts) job.fate = job_end::poisoned;
  }
  job.waiting = !job.fate;
  if (job.waiting && is_ordinary(job)) waiting_ordinary_.insert(c.job);
}

bool job_world::is_ordinary(const job_state& job) const {
  return !job.request.fresh && !job.request.place && job.blamed == 0;
}

}  // namespace penstock::testing
