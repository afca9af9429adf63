#include "runtime/schedule/ledger.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace penstock::schedule {
namespace {

constexpr std::uint32_t replacement_tries_max = 16;  // rule S10
constexpr nanoseconds batch_busy_max = std::chrono::hours(1);  // longer reported times are cut to this

/// Whether survivors and failures add up to the lease's samples, with each failure listed once and in order.
bool plausible(const load_report& report, std::size_t samples) {
  if (report.rows + report.failures.size() != samples) return false;
  for (std::size_t i = 0; i < report.failures.size(); ++i) {
    if (report.failures[i].row >= samples) return false;
    if (i > 0 && report.failures[i].row <= report.failures[i - 1].row) return false;
  }
  return true;
}

}  // namespace

std::string batch_source::describe(std::uint64_t sample) const {
  return fmt::format("sample {}", sample);
}

ledger::ledger(ledger_settings settings, const batch_source& source, stream_range range)
    : settings_(settings),
      source_(source),
      range_(range),
      base_(range.first),
      next_upload_(range.first),
      suspicion_(settings.max_attempts) {
  PENSTOCK_CHECK(settings.max_attempts >= 1, "max_attempts {}", settings.max_attempts);
  PENSTOCK_CHECK(settings.window <= delivery_front::window_max, "window {}", settings.window);
  PENSTOCK_CHECK(range.first <= range.end, "range {}..{}", range.first, range.end);
  if (range.early == 0) return;
  const delivery_front delivered(range.first, range.early);
  const stream_position behind = range.first + static_cast<std::uint64_t>(std::bit_width(range.early)) + 1;
  for (stream_position p = range.first; p < std::min(behind, range.end); ++p) {
    window_.emplace_back();
    if (delivered.has(p)) {
      window_.back().state = batch_state::acknowledged;
    } else {
      waiting_.insert(p);
    }
  }
}

// ---- decisions --------------------------------------------------------------------------------------------

std::vector<command> ledger::advance() {
  if (!gave_up_) {
    if (!paused_) {
      lease_probations();
      lease_batches();
      make_room_for_head();
    }
    upload_loaded();
  }
  return std::exchange(outbox_, {});
}

void ledger::lease_batches() {
  // Lease lost batches first, in order of position, then new ones.
  for (auto it = waiting_.begin(); it != waiting_.end() && anyone_free(urgency::lost_lease);) {
    const stream_position position = *it++;
    try_lease(position, urgency::lost_lease);
  }
  while (anyone_free(urgency::ahead) && base_ + window_.size() < range_.end) {
    const stream_position position = base_ + window_.size();
    window_.emplace_back();
    waiting_.insert(position);
    if (!try_lease(position, urgency::ahead)) break;
  }
}

bool ledger::try_lease(stream_position position, urgency how) {
  resolve_samples(position);
  batch& b = at(position);
  const std::uint64_t epoch = source_.epoch_of(position);
  if (waits_for_probation(epoch, b)) return false;
  const auto worker = choose_worker(b, how);
  if (!worker) return false;
  const lease_ref lease = take_slot(*worker, position);
  b.state = batch_state::leased;
  b.worker = lease.holder.worker;
  b.slot = lease.slot;
  waiting_.erase(position);
  outbox_.emplace_back(load_command{lease, position, epoch, b.samples});
  return true;
}

bool ledger::has_room(const worker_entry& worker, urgency how) const noexcept {
  const std::uint32_t most = batches_are_slow() ? 1 : std::max(worker.more.max, settings_.leases_ahead);
  const std::uint32_t spare = how == urgency::stream_waits ? 0 : settings_.spare_slots;
  return worker.leasable() > spare && (how != urgency::ahead || worker.leased < most);
}

bool ledger::anyone_free(urgency how) const {
  return std::ranges::any_of(workers_.all(), [this, how](const auto& entry) {
    const worker_entry& w = entry.second;
    return w.takes_leases() && w.kind == worker_kind::loader && has_room(w, how);
  });
}

/// The worker has finished a lease. If it ran out of leases, because it is faster than our messages, it
/// may hold more from now on.
void ledger::end_lease(std::uint32_t index, std::uint32_t number) {
  workers_.lease_over(index, number);
  worker_entry& worker = workers_.at(index);
  const bool more_to_lease = !paused_ && base_ + window_.size() < range_.end;
  const bool is_idle = worker.leased == 0 && worker.leasable() > settings_.spare_slots;
  if (more_to_lease && is_idle && !batches_are_slow() && worker.more.max < worker.slots.size()) worker.more.max *= 2;
}

bool ledger::eligible(std::uint32_t index, const worker_entry& worker, const batch& b) const {
  const auto can_load = [](const worker_entry& w) {
    return w.takes_leases() && w.kind == worker_kind::loader;
  };
  const auto died_of_it = [&](std::uint32_t i) { return std::ranges::find(b.avoid, i) != b.avoid.end(); };
  if (!can_load(worker)) return false;
  if (!died_of_it(index)) return true;
  // A worker that died of a sample in this batch may load the batch again only if every other
  // worker has died of it, too.
  return std::ranges::none_of(
      workers_.all(), [&](const auto& entry) { return !died_of_it(entry.first) && can_load(entry.second); });
}

std::optional<std::uint32_t> ledger::choose_worker(const batch& b, urgency how,
                                                   const std::set<std::uint32_t>& without) const {
  // Choose the worker with the least work queued; among equals, the one whose host has the least (rule H20).
  std::optional<std::uint32_t> best;
  std::pair<std::uint32_t, std::uint32_t> least;
  for (const auto& [index, worker] : workers_.all()) {
    if (!has_room(worker, how) || without.contains(index) || !eligible(index, worker, b)) continue;
    const std::pair queued(worker.leased, workers_.leased_on_host_of(worker));
    if (best && queued >= least) continue;
    best = index;
    least = queued;
  }
  return best;
}

void ledger::make_room_for_head() {
  // Without this, the stream can deadlock: the head has lost its lease, and all slots hold later batches,
  // which cannot be uploaded before the head.
  const stream_position head = next_upload_;
  if (!waiting_.contains(head)) return;
  resolve_samples(head);
  const batch& lost = at(head);
  if (waits_for_probation(source_.epoch_of(head), lost) || choose_worker(lost, urgency::lost_lease)) return;
  if (try_lease(head, urgency::stream_waits)) return;
  const auto may_load = [&](std::uint32_t index, const worker_entry& w) { return eligible(index, w, lost); };
  if (discard_behind(head, may_load)) try_lease(head, urgency::stream_waits);
}

/// Among the loaded batches after `head` that workers accepted by `may_load` hold, drops the latest, which
/// frees its slot. Returns false if an upload will free a slot anyway, or if there is no such batch.
template <class MayLoad>
bool ledger::discard_behind(stream_position head, MayLoad may_load) {
  std::optional<stream_position> highest;
  for (const auto& [index, worker] : workers_.all()) {
    if (!may_load(index, worker)) continue;
    for (const slot& s : worker.slots) {
      if (s.at != stage::held) continue;
      if (s.use.uploading) return false;
      if (s.use.position && (!highest || *s.use.position > *highest)) highest = s.use.position;
    }
  }
  if (!highest || *highest < head) return false;
  free_slot(at(*highest).worker, at(*highest).slot);
  back_to_waiting(*highest);
  outbox_.emplace_back(batch_discarded{*highest});
  return true;
}

void ledger::upload_loaded() {
  for (stream_position p = next_upload_; in_window(p) && may_be_next(p); ++p) {
    if (at(p).state == batch_state::loaded && !growing_.contains(at(p).worker)) upload(p);
    if (p == next_upload_ && at(p).state >= batch_state::uploading) ++next_upload_;
  }
}

/// Even in relaxed order, all batches of an epoch are delivered before those of the next epoch.
bool ledger::may_be_next(stream_position position) const {
  if (position == next_upload_) return true;
  return position - next_upload_ <= settings_.window &&
         source_.epoch_of(position) == source_.epoch_of(next_upload_);
}

void ledger::upload(stream_position position) {
  batch& b = at(position);
  b.state = batch_state::uploading;
  workers_.at(b.worker).slots[b.slot].use.uploading = true;
  uploads_[++last_upload_] = {position, b.worker, b.slot};
  upload_command command{last_upload_, position, b.worker, b.slot, {}};
  command.samples.reserve(b.samples.size());
  for (const planned_sample& s : b.samples) command.samples.push_back(s.sample);
  outbox_.emplace_back(std::move(command));
}

// ---- hedges -----------------------------------------------------------------------------------------------

void ledger::hedge(const std::set<std::uint32_t>& late) {
  if (late.empty() || paused_ || gave_up_) return;
  // Batches beyond `end` need no hedge: before the stream needs them, the late workers will have finished.
  const stream_position end = next_upload_ + workers_.all().size();
  for (stream_position p = next_upload_; p < end && in_window(p); ++p) {
    const batch& b = at(p);
    if (b.state != batch_state::leased || b.second || !late.contains(b.worker) || !may_run_twice(p)) continue;
    if (!load_twice(p, late)) return;
  }
}

std::optional<ledger::head_lease> ledger::head() const {
  if (!in_window(next_upload_)) return std::nullopt;
  const batch& b = at(next_upload_);
  if (b.state != batch_state::leased || b.second) return std::nullopt;
  return head_lease{next_upload_, b.worker};
}

void ledger::hedge_head() {
  const auto waits = head();
  if (!waits || paused_ || gave_up_ || !may_run_twice(waits->position)) return;
  std::set<std::uint32_t> busy;
  for (const auto& [index, worker] : workers_.all()) {
    if (worker.leased > 0) busy.insert(index);
  }
  load_twice(waits->position, busy);
}

bool ledger::load_twice(stream_position position, const std::set<std::uint32_t>& without) {
  const auto worker = choose_second(position, without);
  if (!worker) return false;
  const lease_ref lease = take_slot(*worker, position);
  batch& b = at(position);
  b.second = place{lease.holder.worker, lease.slot};
  ++hedges_.started;
  outbox_.emplace_back(load_command{lease, position, source_.epoch_of(position), b.samples, true});
  return true;
}

/// A batch with a suspect sample runs in one worker at a time, because it may kill both.
bool ledger::may_run_twice(stream_position position) const {
  return std::ranges::all_of(at(position).samples, [&](const planned_sample& s) {
    return s.attempt == 1 && loss_of(source_.epoch_of(position), s.sample) == loss::none &&
           suspicion_.attempt_of({source_.epoch_of(position), s.sample}) == 1;
  });
}

/// The stream cannot continue without its head. If no worker has room for it, an idle worker drops a
/// later batch to free a slot.
std::optional<std::uint32_t> ledger::choose_second(stream_position position,
                                                   const std::set<std::uint32_t>& late) {
  const batch& b = at(position);
  if (const auto worker = choose_worker(b, urgency::stream_waits, late)) return worker;
  const auto idle = [&](std::uint32_t index, const worker_entry& w) {
    return w.leased == 0 && !late.contains(index) && eligible(index, w, b);
  };
  if (position != next_upload_ || !discard_behind(position, idle)) return std::nullopt;
  return choose_worker(b, urgency::stream_waits, late);
}

/// Whether a second worker is still loading the batch of a worker that died.
bool ledger::other_goes_on(stream_position position, std::uint32_t died) {
  batch& b = at(position);
  if (!b.second) return false;
  if (b.second->worker != died) {
    b.worker = b.second->worker;
    b.slot = b.second->slot;
    b.lost = true;
  }
  b.second.reset();
  return true;
}

void ledger::no_longer_needed(const place& where) {
  worker_entry& worker = workers_.at(where.worker);
  slot& s = worker.slots[where.slot];
  s.use.position.reset();
  outbox_.emplace_back(drop_command{{{where.worker, worker.incarnation}, where.slot, s.generation}});
}

void ledger::first_to_finish(batch& b, std::uint32_t worker) {
  if (!b.second) return;
  const place first{b.worker, b.slot};
  if (b.second->worker == worker) {
    ++hedges_.won;
    no_longer_needed(first);
    b.worker = b.second->worker;
    b.slot = b.second->slot;
  } else {
    no_longer_needed(*b.second);
  }
  b.second.reset();
}

// ---- slots ------------------------------------------------------------------------------------------------

lease_ref ledger::take_slot(std::uint32_t index, std::optional<stream_position> position) {
  const lease_ref lease = workers_.take(index);
  workers_.at(index).slots[lease.slot].use = {position, false};
  return lease;
}

void ledger::free_slot(std::uint32_t index, std::uint32_t number) {
  workers_.release(index, number);
  workers_.at(index).slots[number].use = {};
}

void ledger::back_to_waiting(stream_position position) {
  at(position).state = batch_state::waiting;
  waiting_.insert(position);
}

// ---- workers ----------------------------------------------------------------------------------------------

void ledger::worker_joined(worker_ref who, std::uint32_t slots, worker_kind kind, std::optional<std::uint64_t> host) {
  worker_entry* worker = workers_.join(who, slots, kind, host);
  if (worker == nullptr) return;
  worker->more = {};
  const auto growing = growing_.find(who.worker);
  worker->without_memory = growing == growing_.end() ? 0 : slots - std::min(slots, growing->second);
}

void ledger::place_grows(std::uint32_t worker, std::uint32_t slots) {
  growing_[worker] = slots;
}

void ledger::place_complete(std::uint32_t worker) {
  growing_.erase(worker);
  if (worker_entry* const there = workers_.find(worker)) there->without_memory = 0;
}

std::optional<blame> ledger::worker_died(worker_ref who, std::optional<flight_mark> mark,
                                         const std::string& cause) {
  worker_entry* worker = workers_.living(who);
  if (worker == nullptr) return std::nullopt;
  std::optional<blame> blamed = mark ? resolve(who, *mark) : std::nullopt;
  worker->alive = false;
  for (std::uint32_t i = 0; i < worker->slots.size(); ++i) {
    if (worker->slots[i].at != stage::leased) continue;
    const auto position = worker->slots[i].use.position;
    free_slot(who.worker, i);
    if (!position || other_goes_on(*position, who.worker)) continue;
    back_to_waiting(*position);
    at(*position).lost = true;
  }
  suspicion_.worker_gone(who);
  if (blamed) blame_death(*blamed, who.worker, cause);
  return blamed;
}

void ledger::worker_drains(worker_ref who) {
  if (worker_entry* worker = workers_.living(who)) worker->draining = true;
}

std::optional<blame> ledger::resolve(worker_ref who, const flight_mark& mark) const {
  if (workers_.standing_of({who, mark.slot, mark.generation}) != lease_standing::current) return std::nullopt;
  const auto& position = workers_.find(who.worker)->slots[mark.slot].use.position;
  if (position) {
    const batch& b = at(*position);
    if (mark.row >= b.samples.size()) return std::nullopt;
    return blame{*position, b.samples[mark.row].sample, b.samples[mark.row].attempt, false};
  }
  const auto tried = suspicion_.probation_under({who, mark.slot, mark.generation});
  if (!tried) return std::nullopt;  // the probation was cancelled in the meantime
  return blame{tried->position, tried->who.sample, tried->attempt, true};
}

std::optional<stream_position> ledger::position_of(const lease_ref& lease) const {
  if (workers_.standing_of(lease) != lease_standing::current) return std::nullopt;
  return workers_.find(lease.holder.worker)->slots[lease.slot].use.position;
}

// ---- loading ----------------------------------------------------------------------------------------------

arrival ledger::loaded(const load_report& report) {
  const lease_standing standing = workers_.standing_of(report.lease);
  const auto dropped = [this](arrival how) {
    ++stale_dropped_;
    return how;
  };
  if (standing == lease_standing::gone) return dropped(arrival::late);
  // A worker reports each lease once, so a second report for a finished lease is impossible.
  if (standing != lease_standing::current) return dropped(arrival::impossible);
  const auto [holder, number, generation] = report.lease;
  const std::optional<stream_position> leased = workers_.at(holder.worker).slots[number].use.position;
  if (!leased) {
    probation_reported(report);
    end_lease(holder.worker, number);
    free_slot(holder.worker, number);
    return arrival::accepted;
  }
  const stream_position position = *leased;
  batch& b = at(position);
  if (!plausible(report, b.samples.size())) return dropped(arrival::impossible);

  end_lease(holder.worker, number);
  const nanoseconds busy = std::clamp(report.busy, nanoseconds(0), batch_busy_max);
  usual_busy_ += usual_busy_ == nanoseconds(0) ? busy : (busy - usual_busy_) / 8;
  first_to_finish(b, holder.worker);
  for (const row_failure& f : report.failures) record_failure(position, b.samples[f.row].sample, f.reason);
  if (!report.failures.empty() && settings_.on_bad_sample == bad_sample_rule::replace) {
    free_slot(holder.worker, number);
    back_to_waiting(position);  // the next lease will contain replacements for the failed samples
    return arrival::accepted;
  }
  for (auto failed = report.failures.rbegin(); failed != report.failures.rend(); ++failed) {
    b.samples.erase(b.samples.begin() + failed->row);
  }
  b.lost_to_failure += static_cast<std::uint32_t>(report.failures.size());
  b.state = batch_state::loaded;
  if (std::exchange(b.lost, false)) outbox_.emplace_back(batch_recovered{position});
  return arrival::accepted;
}

void ledger::record_failure(stream_position position, std::uint64_t sample, const std::string& reason) {
  failed_.insert({source_.epoch_of(position), sample});
  outbox_.emplace_back(sample_failed{position, sample, reason});
  if (settings_.on_bad_sample == bad_sample_rule::fail) {
    fail_run({errc::sample,
              fmt::format("{}: {} (on_bad_sample = \"fail\")", source_.describe(sample), reason), 0});
  }
}

void ledger::fail_run(failure reason) {
  if (!std::exchange(gave_up_, true)) outbox_.emplace_back(give_up{std::move(reason)});
}

void ledger::resolve_samples(stream_position position) {
  const std::uint64_t epoch = source_.epoch_of(position);
  const std::vector<std::uint64_t> planned = source_.samples(position);
  batch& b = at(position);
  b.samples.clear();
  b.avoid.clear();
  b.died_of.reset();
  b.lost_to_failure = 0;
  b.lost_to_quarantine = 0;
  b.replaced = 0;
  const bool left_out = left_out_.contains(position);
  for (std::uint32_t row = 0; row < planned.size(); ++row) {
    const resolved_row filled = left_out ? resolved_row{planned[row], loss_of(epoch, planned[row])}
                                         : resolve_row(position, row, planned[row]);
    if (filled.lost == loss::quarantined) {
      ++b.lost_to_quarantine;
    } else if (filled.lost == loss::failed || left_out) {
      ++b.lost_to_failure;
    } else {
      const suspect who{epoch, filled.sample};
      b.samples.push_back({filled.sample, suspicion_.attempt_of(who)});
      if (filled.sample != planned[row]) ++b.replaced;
      std::ranges::copy(suspicion_.last_workers(who), std::back_inserter(b.avoid));
    }
  }
}

ledger::resolved_row ledger::resolve_row(stream_position position, std::uint32_t row,
                                         std::uint64_t planned) const {
  const std::uint64_t epoch = source_.epoch_of(position);
  const loss lost = loss_of(epoch, planned);
  if (lost == loss::none || settings_.on_bad_sample != bad_sample_rule::replace) return {planned, lost};
  for (std::uint32_t attempt = 1; attempt <= replacement_tries_max; ++attempt) {
    const std::uint64_t other = source_.replacement(position, row, attempt);
    if (loss_of(epoch, other) == loss::none) return {other, loss::none};
  }
  return {planned, lost};
}

ledger::loss ledger::loss_of(std::uint64_t epoch, std::uint64_t sample) const {
  if (suspicion_.is_quarantined(sample)) return loss::quarantined;
  if (failed_.contains({epoch, sample})) return loss::failed;
  return loss::none;
}

// ---- suspects ---------------------------------------------------------------------------------------------

void ledger::blame_death(blame& to, std::uint32_t worker, const std::string& cause) {
  const suspect who{source_.epoch_of(to.position), to.sample};
  batch* const b = to.alone ? nullptr : &at(to.position);
  to.repeated = b != nullptr && b->died_of == to.sample;
  if (to.repeated) return suspicion_.same_attempt(who, worker);
  auto lost = suspicion_.blame_death(who, to.position, to.alone, worker, cause);
  if (b != nullptr && b->state == batch_state::leased) {
    b->died_of = to.sample;
    if (lost) {  // the other worker would load the quarantined sample into the batch
      no_longer_needed({b->worker, b->slot});
      back_to_waiting(to.position);
    }
  }
  if (lost) tell_quarantined(std::move(*lost));
}

void ledger::cannot_try_alone(const std::string& reason) {
  for (sample_quarantined& lost : suspicion_.quarantine_isolated(reason)) tell_quarantined(std::move(lost));
}

void ledger::tell_quarantined(sample_quarantined lost) {
  const std::string name = source_.describe(lost.sample);
  const std::string deaths = deaths_over_work(name, lost.causes, lost.attempts);
  outbox_.emplace_back(std::move(lost));
  const std::uint64_t all = suspicion_.quarantined().size();
  if (settings_.on_bad_sample == bad_sample_rule::fail) {
    fail_run({errc::sample, deaths + " (on_bad_sample = \"fail\")", 0});
  } else if (all > settings_.quarantine_max) {
    fail_run({errc::quarantine_full,
              fmt::format("{} quarantined, but [quarantine] allows only {}: the cause is systematic and not "
                          "in the samples; the last one was {}",
                          counted(all, "sample is", "samples are"), settings_.quarantine_max, name),
              0});
  }
}

bool ledger::waits_for_probation(std::uint64_t epoch, const batch& b) const {
  return suspicion_.anybody_isolated() && std::ranges::any_of(b.samples, [&](const planned_sample& s) {
           return suspicion_.isolated({epoch, s.sample});
         });
}

void ledger::lease_probations() {
  for (auto& [index, worker] : workers_.all()) {
    if (worker.kind != worker_kind::sacrificial || !worker.takes_leases() || worker.leased > 0 ||
        worker.leasable() == 0) {
      continue;
    }
    const auto next = suspicion_.next_probation();
    if (!next) return;
    const lease_ref lease = take_slot(index, std::nullopt);
    suspicion_.begin_probation(next->who, lease);
    outbox_.emplace_back(
        load_command{lease, next->position, next->who.epoch, {{next->who.sample, next->attempt}}});
  }
}

void ledger::probation_reported(const load_report& report) {
  const auto ended = suspicion_.clear(report.lease);
  if (ended && !report.failures.empty())
    record_failure(ended->position, ended->who.sample, report.failures.front().reason);
}

// ---- the device -------------------------------------------------------------------------------------------

void ledger::slot_released(std::uint64_t upload) {
  const auto it = uploads_.find(upload);
  if (it == uploads_.end() || it->second.released) {
    ++stale_dropped_;
    return;
  }
  upload_entry& entry = it->second;
  free_slot(entry.worker, entry.slot);
  entry.released = true;
  if (entry.wanted) {
    at(entry.position).state = batch_state::on_device;
  } else {
    uploads_.erase(it);
  }
}

std::optional<delivery> ledger::acknowledged(std::uint64_t upload) {
  const auto it = uploads_.find(upload);
  if (it == uploads_.end() || !it->second.wanted) {
    ++stale_dropped_;
    return std::nullopt;
  }
  batch& b = at(it->second.position);
  const delivery done{it->second.position, static_cast<std::uint32_t>(b.samples.size()), b.lost_to_failure,
                      b.lost_to_quarantine, b.replaced};
  b.state = batch_state::acknowledged;
  it->second.wanted = false;
  if (it->second.released) uploads_.erase(it);
  forget_acknowledged();
  return done;
}

void ledger::forget_acknowledged() {
  const std::uint64_t epoch_before = source_.epoch_of(base_);
  while (!window_.empty() && window_.front().state == batch_state::acknowledged) {
    window_.pop_front();
    ++base_;
  }
  next_upload_ = std::max(next_upload_, base_);
  left_out_.erase(left_out_.begin(), left_out_.lower_bound(base_));
  const std::uint64_t epoch = source_.epoch_of(base_);
  if (epoch == epoch_before) return;
  suspicion_.forget_epochs_before(epoch);
  std::erase_if(failed_, [&](const auto& key) { return key.first < epoch; });
}

void ledger::owner_died() {
  for (auto& [number, entry] : uploads_) {
    if (!entry.released && entry.wanted) {
      // The slot was not released, so it still holds the batch.
      at(entry.position).state = batch_state::loaded;
      workers_.at(entry.worker).slots[entry.slot].use.uploading = false;
    } else if (!entry.released) {
      free_slot(entry.worker, entry.slot);
    } else {
      back_to_waiting(entry.position);
    }
  }
  uploads_.clear();
  next_upload_ = base_;
}

std::vector<std::uint64_t> ledger::leave_out(stream_position position, const std::string& reason) {
  std::vector<std::uint64_t> samples;
  if (!in_window(position)) return samples;
  left_out_.insert(position);
  batch& b = at(position);
  for (const planned_sample& s : b.samples) {
    samples.push_back(s.sample);
    outbox_.emplace_back(sample_failed{position, s.sample, reason});
  }
  if (b.state == batch_state::loaded) {
    free_slot(b.worker, b.slot);
    back_to_waiting(position);
  }
  return samples;
}

void ledger::seek(stream_range range) {
  PENSTOCK_CHECK(range.first <= range.end, "range {}..{}", range.first, range.end);
  for (auto& [index, worker] : workers_.all()) {
    for (std::uint32_t i = 0; i < worker.slots.size(); ++i) {
      slot& s = worker.slots[i];
      if (s.at == stage::held && !s.use.uploading) {
        free_slot(index, i);
      } else {
        s.use.position.reset();  // a lease or copy in progress is completed, but its result is dropped
      }
    }
  }
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    it->second.wanted = false;
    it = it->second.released ? uploads_.erase(it) : std::next(it);
  }
  window_.clear();
  waiting_.clear();
  suspicion_.forget_suspects();
  failed_.clear();
  left_out_.clear();
  range_ = range;
  base_ = range.first;
  next_upload_ = range.first;
}

std::uint32_t ledger::leases_of(std::uint32_t worker) const noexcept {
  const worker_entry* known = workers_.find(worker);
  return known == nullptr ? 0 : known->leased;
}

std::uint32_t ledger::lost_before(std::uint32_t worker) const {
  const worker_entry* known = workers_.find(worker);
  if (known == nullptr) return 0;
  return static_cast<std::uint32_t>(std::ranges::count_if(known->slots, [this](const slot& s) {
    return s.at == stage::leased && s.use.position && at(*s.use.position).lost;
  }));
}

}  // namespace penstock::schedule
