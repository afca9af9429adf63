#include "runtime/telemetry/stream_limits.hpp"

#include <algorithm>
#include <utility>

namespace penstock::telemetry {
namespace {

constexpr std::size_t known_max = 8192;  // the most passages kept; far more than any stream has in flight

// A head is stalled if loading it takes `stalled_from` times as long as a usual batch of its worker, and at
// least stalled_seconds longer. Only the time beyond `usual_part` times the usual time counts as stalled.
constexpr double stalled_from = 4;
constexpr double stalled_seconds = 0.02;
constexpr double usual_part = 1.5;
// A worker counts as slow if it needs this many times as long as its peers.
constexpr double slow_from = 2.5;
// A worker's own time for a sample counts only once this many of its batches are known.
constexpr std::size_t known_from = 3;

std::int64_t ns_of(steady_time when) {
  return nanoseconds(when.time_since_epoch()).count();
}

std::int64_t stamp(const batch_passage& b, batch_stage s) {
  return b.time_of(s);
}

}  // namespace

limit_reading stream_limits::look(steady_time when, const limit_facts& facts) {
  // After the end, the reading no longer changes, but the first look after the end still
  // settles the last batches.
  if (std::exchange(over_, facts.is_over) && over_) return last_;
  const std::int64_t now = ns_of(when);
  buckets_.turn_to(now, taken_);
  waits_from_ = 0;
  if (looked_ > 0 && now - looked_ > nanoseconds(longest_turn).count()) forget_until(now);
  if (std::exchange(seeks_, facts.seeks) != facts.seeks) forget_batches();
  lost_now_ = 0;
  if (facts.begun == never) return last_ = {};
  note_pause(now, facts);
  const bool owner_is_away = note_outage(now, facts);
  if (!facts.jobs) note_lost(now, facts);
  workers_.look(now, looked_, facts.workers, {.is_paused = facts.is_paused, .owner_is_away = owner_is_away});
  if (facts.jobs) {
    add_lost_waits(facts.jobs->lost_waits);
    sample_jobs(now, facts);
    if (facts.jobs->any_ended) buckets_.end_beginning(now);
  } else {
    remember(facts);
    buckets_.estimate(true);
    estimate(now, facts);
    buckets_.estimate(false);
  }
  looked_ = now;
  limit_reading found = read(now, facts);
  // If a run is stopped while it is stuck, it has waited for a batch that never arrives, so that wait is never settled.
  if (facts.is_over && !found.largest()) {
    last_.lost_seconds = found.lost_seconds;
    return last_;
  }
  return last_ = std::move(found);
}

/// Call it after this process or its machine was suspended: that time says nothing about the stream.
void stream_limits::forget_until(std::int64_t now) {
  forget_batches();
  buckets_.forget_until(now);
  workers_.forget_times();
  looked_ = now;
}

/// Waits for these batches are never settled, but the time that deaths have cost so far still counts.
void stream_limits::forget_batches() {
  lost_seconds_ = last_.lost_seconds.value_or(0);
  down_ = frozen_ = 0;
  lost_.clear();
  std::erase_if(known_, [](const auto& one) { return stamp(one.second, batch_stage::taken) == 0; });
}

/// Attributes a wait for a batch that one or more workers have lost. The time that a worker had the batch
/// counts as work; the time after that, until the batch was leased `again`, counts as start. Each worker that
/// died is charged with the time since it got its lease.
void stream_limits::add_lost(const std::vector<earlier_lease>& held, std::int64_t from, std::int64_t again, std::int64_t to,
                             const limit_facts& facts) {
  std::uint32_t charged = held.front().of.worker;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const earlier_lease& one = held[i];
    const bool is_last = i + 1 == held.size();
    const std::int64_t next = is_last ? again : stamp(held[i + 1].of, batch_stage::leased);
    const std::int64_t leased = std::max(from, stamp(one.of, batch_stage::leased));
    const std::int64_t ended = std::clamp(one.ended, leased, std::max(next, leased));
    add_unfinished(one.of, leased, ended, one.reads, false, facts);
    buckets_.add(limit::start, ended, next);
    if (one.died) charged = one.of.worker;
    buckets_.add_lost(charged, leased, is_last ? to : next);
  }
}

/// How many seconds of a wait deaths have cost. In contrast to the shares, the whole wait counts, however
/// long it is. Pauses do not count.
double stream_limits::cost_of(std::int64_t first_leased, std::int64_t from, std::int64_t to) const {
  return buckets_.unpaused_seconds({std::max(from, first_leased), to});
}

const worker_look* stream_limits::look_of(const batch_passage& b, const limit_facts& facts) {
  const auto is_its = [&b](const worker_look& w) { return w.id == b.worker && w.incarnation == b.incarnation && w.ready; };
  if (facts.sacrificial && is_its(*facts.sacrificial)) return &*facts.sacrificial;
  const auto found = std::ranges::find_if(facts.workers, is_its);
  return found == facts.workers.end() ? nullptr : &*found;
}

/// Records the lease of a batch that has lost it: its worker has died, or the sacrificial worker has tried a
/// sample of it. If a batch is leased again while its first worker lives, it is a late batch with two
/// workers, and has lost nothing.
void stream_limits::note_lost(std::int64_t now, const limit_facts& facts) {
  for (const batch_passage& b : facts.passages) {
    const auto known = known_.find(b.position);
    const bool is_leased_again = known != known_.end() && stamp(b, batch_stage::leased) > stamp(known->second, batch_stage::leased);
    const batch_passage& before = is_leased_again ? known->second : b;
    if (before.reached() >= batch_stage::loaded) continue;
    const auto lost = lost_.find(b.position);
    const bool is_noted = lost != lost_.end() && stamp(lost->second.back().of, batch_stage::leased) == stamp(before, batch_stage::leased);
    const bool lives = look_of(before, facts) != nullptr;
    const bool was_tried_alone = is_leased_again && lost != lost_.end() && facts.sacrificial && facts.sacrificial->id == before.worker;
    // The worker lives: it got the lease before its own state was known.
    if (lives && is_noted && !is_leased_again) {
      lost->second.pop_back();
      if (lost->second.empty()) lost_.erase(lost);
    }
    if (is_noted || (lives && !was_tried_alone)) continue;
    lost_[b.position].push_back({before, is_leased_again ? stamp(b, batch_stage::leased) : now, workers_.was_reading(before.worker), !lives});
  }
}

/// Records the time since the last look as a pause if the session is or was paused.
void stream_limits::note_pause(std::int64_t now, const limit_facts& facts) {
  const bool was_paused = std::exchange(paused_, facts.is_paused);
  if (was_paused || paused_) buckets_.pause({looked_, now});
}

/// If the owner could not work, records the time since the last look as an outage, and returns true. Does
/// nothing before the first batch has been taken.
bool stream_limits::note_outage(std::int64_t now, const limit_facts& facts) {
  const bool down = !facts.device_ready && !facts.owner_is_frozen;
  const double frozen = std::exchange(frozen_, 0);
  if (std::exchange(owner_deaths_, facts.owner_deaths) != facts.owner_deaths) down_ += frozen;
  if (facts.jobs || taken_ == 0 || looked_ == 0 || facts.is_over || (!down && !facts.owner_is_frozen)) return false;
  buckets_.outage({looked_, now}, facts.owner_is_frozen);
  const double costs = !paused_ && (facts.owner_is_elsewhere || facts.waits_since) ? seconds_of(now - looked_) : 0;
  if (down) down_ += costs;
  if (facts.owner_is_frozen) frozen_ = frozen + costs;
  return true;
}

/// Records the progress of batches, and settles finished waits.
void stream_limits::remember(const limit_facts& facts) {
  // The facts contain these batches again, except those that a seek or the death of their worker has removed.
  std::erase_if(known_, [](const auto& one) { return stamp(one.second, batch_stage::taken) == 0; });
  std::vector<const batch_passage*> taken;
  for (batch_passage b : facts.passages) {
    // If the owner runs in another process, the time of a wait is known only when the batch
    // is reported as released.
    if (facts.owner_is_elsewhere && stamp(b, batch_stage::released) == 0)
      b.at[static_cast<std::size_t>(batch_stage::taken)] = 0;
    const auto known = known_.find(b.position);
    const bool was_taken = known != known_.end() && stamp(known->second, batch_stage::taken) != 0 &&
                           stamp(known->second, batch_stage::leased) == stamp(b, batch_stage::leased);
    const batch_passage& kept = known_.insert_or_assign(b.position, b).first->second;
    if (!was_taken && stamp(b, batch_stage::taken) > taken_) taken.push_back(&kept);
    if (was_taken && stamp(b, batch_stage::taken) == taken_) released_ = stamp(b, batch_stage::released);
  }
  std::ranges::sort(taken, {}, [](const batch_passage* b) { return stamp(*b, batch_stage::taken); });
  for (const batch_passage* b : taken) settle(*b, facts);
  if (!taken.empty()) {
    // Keep the batches that were taken last, because they show which batches followed a head. Taken batches
    // at a later position are from before a seek, so drop them.
    const std::size_t kept = 4 * facts.slots_per_worker * std::max<std::size_t>(facts.workers.size(), 1);
    const stream_position last = taken.back()->position;
    std::erase_if(known_, [&](const auto& one) {
      return one.first + kept < last || (one.first > last && stamp(one.second, batch_stage::taken) != 0);
    });
  }
  while (known_.size() > known_max) known_.erase(known_.begin());
  // Only entries of batches that a seek has dropped can accumulate.
  while (lost_.size() > known_max) lost_.erase(lost_.begin());
}

/// Attributes the consumer's wait for this batch, which it has taken.
void stream_limits::settle(const batch_passage& b, const limit_facts& facts) {
  const std::int64_t to = stamp(b, batch_stage::taken);
  const std::int64_t earliest = std::max(taken_, ns_of(facts.begun));
  // A sink asks for the first batch only once the stream is ready, but the first wait counts from the
  // beginning of the stream.
  const bool is_known = taken_ != 0 && b.demanded != 0;
  const std::int64_t from = is_known ? std::clamp(b.demanded, earliest, to) : earliest;
  if (taken_ != 0) buckets_.add(limit::consumer, earliest, from);
  workers_.consumer_waited(from, to);
  const auto part = [&](std::int64_t first, std::int64_t last, auto&& act) {
    first = std::max(first, from);
    last = std::min(last, to);
    if (first < last) act(first, last);
  };
  const auto is = [&](limit what) {
    return [this, what](std::int64_t first, std::int64_t last) { buckets_.add(what, first, last); };
  };
  const std::int64_t leased = stamp(b, batch_stage::leased);
  const std::int64_t begun = std::max(stamp(b, batch_stage::begun), leased);
  const std::int64_t loaded = std::max(stamp(b, batch_stage::loaded), begun);
  const std::int64_t ordered = std::max(stamp(b, batch_stage::ordered), loaded);
  const std::int64_t submitted = std::max(stamp(b, batch_stage::submitted), ordered);
  const std::int64_t copied = std::max(stamp(b, batch_stage::copied), submitted);
  const std::int64_t converted = std::max(stamp(b, batch_stage::ready), copied);
  // lost_ does not contain a batch that was lost and leased again between two looks.
  std::int64_t first_leased = b.first_leased == 0 ? leased : b.first_leased;
  if (const auto lost = lost_.find(b.position); lost != lost_.end()) {
    first_leased = std::min(first_leased, stamp(lost->second.front().of, batch_stage::leased));
    part(from, first_leased, is(limit::start));
    part(from, leased, [&](std::int64_t first, std::int64_t last) { add_lost(lost->second, first, last, last, facts); });
    lost_.erase(lost);
  } else {
    part(from, leased, is(limit::start));
  }
  if (workers_.is_held_up_by_link(b.worker)) {
    part(leased, loaded, [&](std::int64_t first, std::int64_t last) { buckets_.add_link(first, last); });
  } else {
    part(leased, begun, is(limit::order));
    part(begun, loaded, [&](std::int64_t first, std::int64_t last) { settle_load(b, first, last, facts); });
  }
  part(loaded, ordered, is(limit::order));
  part(ordered, submitted, [&](std::int64_t first, std::int64_t last) {
    // The first batch waits until the device is open; later batches wait until the
    // consumer releases a buffer.
    if (taken_ == 0) return buckets_.add(limit::start, first, last);
    buckets_.add_held(first, last);
  });
  part(submitted, copied, is(nothing_was_behind(b) ? limit::order : limit::wire));
  part(copied, converted, is(limit::convert));
  if (converted > submitted && converted - submitted > copied - submitted)
    wire_part_ = static_cast<double>(copied - submitted) / static_cast<double>(converted - submitted);
  const bool slows = workers_.loaded(b);
  slow_batches_ += b.slow_ns > 0 && !slows ? 1 : 0;
  buckets_.note_batch(b.samples, to);
  // A worker and the owner may both have been away at the same time; count that time once.
  const double cost = cost_of(first_leased, from, std::min(leased, to));
  lost_seconds_ += std::min(cost + std::exchange(down_, 0), seconds_of(to - earliest));
  taken_ = to;
  buckets_.end_beginning(to);
  released_ = stamp(b, batch_stage::released);
}

/// Attributes the time that the consumer waited while a worker loaded the head.
void stream_limits::settle_load(const batch_passage& b, std::int64_t from, std::int64_t to,
                                const limit_facts& facts) {
  const std::int64_t begun = stamp(b, batch_stage::begun);
  const std::int64_t loaded = stamp(b, batch_stage::loaded);
  const double reading = static_cast<double>(b.reading_ns) / static_cast<double>(loaded - begun);
  const double busy = seconds_of(loaded - begun);
  const double usual = typical_of(b.worker).value_or(busy) * std::max<std::uint32_t>(b.samples, 1);
  const auto sample = b.slowest_ns > 0 ? std::optional(b.slowest) : std::nullopt;
  if (b.slow_ns > 0 && !workers_.slows_all_samples(b.worker))
    buckets_.add_slow({b.worker, seconds_of(b.slowest_ns), sample}, static_cast<double>(b.slow_ns) / static_cast<double>(loaded - begun), from, to);
  if (busy > stalled_from * usual && busy - usual > stalled_seconds &&
      others_are_ready(b, loaded - (to - from) / 2, facts)) {
    const auto excused = static_cast<std::int64_t>(usual_part * usual * 1e9);
    const std::int64_t stalls = std::clamp(begun + excused, from, to);
    add_work(b.worker, reading, from, stalls);
    return buckets_.add_stall({b.worker, busy, sample}, workers_.core_use_of(b.worker).starved, stalls, to);
  }
  if (const auto slowness = workers_.slowness_of(b.worker); slowness && *slowness >= slow_from) {
    const double starved = workers_.starved(b.worker);
    buckets_.note_slow({b.worker, *slowness, *slowness * (1 - starved) < slow_from ? starved : 0}, to);
    return add_work(b.worker, reading, from, to);
  }
  const double idle = workers_.idle_share();
  const std::int64_t works = to - static_cast<std::int64_t>(static_cast<double>(to - from) * idle);
  add_work(b.worker, reading, from, works);
  // If workers lack cores while they work, the session probably lacks cores, too, and so leases batches late.
  // That part counts as a lack of cores.
  const double starved = workers_.core_use_of(b.worker).starved;
  buckets_.add(limit::order, works, to, 1 - starved);
  buckets_.add_no_core(starved, works, to);
}

/// `reading`: the share of this time spent in timed reads. Only built-in datasets time their reads; all other
/// work counts as decoding. So does time spent waiting for a core, even in the middle of a read.
void stream_limits::add_work(std::uint32_t worker, double reading, std::int64_t from, std::int64_t to) {
  reading = std::clamp(reading, 0.0, 1.0);
  reading = workers_.without_core_wait(worker, reading);
  const double no_core = std::min(workers_.core_use_of(worker).starved, 1 - reading);
  buckets_.add(limit::storage, from, to, reading);
  buckets_.add(limit::decode, from, to, 1 - reading - no_core);
  buckets_.add_no_core(no_core, from, to);
}

/// Attributes the time since the last batch was taken.
void stream_limits::estimate(std::int64_t now, const limit_facts& facts) {
  lost_now_ = down_;
  if (facts.is_over) return;
  const std::int64_t idle_since = taken_ == 0 ? ns_of(facts.begun) : taken_;
  std::int64_t waits = now;
  if (facts.waits_since) {
    // If the owner is in another process, only its last report shows when the wait began.
    const std::int64_t since =
        facts.owner_is_elsewhere ? std::max(released_, idle_since) : ns_of(*facts.waits_since);
    waits = std::clamp(since, idle_since, now);
  }
  if (taken_ == 0) waits = idle_since;
  buckets_.add(limit::consumer, idle_since, waits);
  if (waits < now) waits_from_ = waits;
  if (waits < now) estimate_head(waits, now, facts);
}

void stream_limits::estimate_head(std::int64_t from, std::int64_t now, const limit_facts& facts) {
  const auto not_taken = [](const auto& one) { return stamp(one.second, batch_stage::taken) == 0; };
  const auto found = std::ranges::find_if(known_, not_taken);
  const bool some_ready = std::ranges::any_of(facts.workers, &worker_look::ready);
  if (found == known_.end()) {
    if (!some_ready || !facts.device_ready) buckets_.add(limit::start, from, now);
    return;
  }
  const batch_passage& head = found->second;
  switch (head.reached()) {
    case batch_stage::leased:
    case batch_stage::begun: return estimate_load(head, from, now, facts);
    case batch_stage::loaded: return buckets_.add(limit::order, from, now);
    case batch_stage::ordered:
      if (!facts.device_ready) return buckets_.add(limit::start, from, now);
      // The owner's timestamps arrive only when the batch is delivered, so divide the
      // time as for the last batch.
      if (facts.owner_is_elsewhere) {
        buckets_.add(limit::wire, from, now, wire_part_);
        return buckets_.add(limit::convert, from, now, 1 - wire_part_);
      }
      return buckets_.add_held(from, now);
    case batch_stage::submitted: return buckets_.add(limit::wire, from, now);
    case batch_stage::copied: return buckets_.add(limit::convert, from, now);
    default: return;  // ready: the batch waits for the other ranks of a group
  }
}

void stream_limits::estimate_load(const batch_passage& head, std::int64_t from, std::int64_t now,
                                  const limit_facts& facts) {
  const worker_look* const w = look_of(head, facts);
  const bool is_tried_alone = facts.sacrificial && facts.sacrificial->id == head.worker;
  const std::int64_t leased = std::min(stamp(head, batch_stage::leased), now);
  const std::int64_t again = w == nullptr ? now : leased;  // until this time no living worker had the batch
  if (const auto lost = lost_.find(head.position); lost != lost_.end()) {
    const std::vector<earlier_lease>& held = lost->second;
    const std::int64_t until = is_tried_alone ? now : again;
    buckets_.add(limit::start, from, std::min(stamp(held.front().of, batch_stage::leased), again));
    add_lost(held, from, again, until, facts);
    lost_now_ = std::min(lost_now_ + cost_of(stamp(held.front().of, batch_stage::leased), from, until), seconds_of(now - (taken_ == 0 ? ns_of(facts.begun) : taken_)));
  } else {
    buckets_.add(limit::start, from, again);
  }
  if (w == nullptr) return;
  from = std::max(from, leased);
  if (workers_.is_held_up_by_link(head.worker)) return buckets_.add_link(from, now);
  if (const auto usual = typical_of(head.worker)) {
    const auto usual_time = nanoseconds(static_cast<std::int64_t>(*usual * 1e9));
    if (is_slow_sample(w->sample_for, usual_time)) {
      const std::int64_t slow_since = std::max(from, now - (w->sample_for - usual_time).count());
      buckets_.add_slow({head.worker, seconds_of(w->sample_for.count()), {}}, 1 - workers_.core_use_of(head.worker).starved, slow_since, now);
    }
  }
  add_unfinished(head, from, now, w->reads, true, facts);
}

/// Attributes the time that the consumer waited while a worker loaded the head and had not finished at `to`.
/// `reads`: the worker was reading at `to`. `still_loads`: `to` is now.
void stream_limits::add_unfinished(const batch_passage& b, std::int64_t from, std::int64_t to, bool reads, bool still_loads,
                                   const limit_facts& facts) {
  if (from >= to) return;
  std::int64_t begun = stamp(b, batch_stage::leased);
  for (const auto& [position, other] : known_) {
    const std::int64_t loaded = stamp(other, batch_stage::loaded);
    if (other.worker == b.worker && other.incarnation == b.incarnation && position != b.position) begun = std::max(begun, loaded);
  }
  begun = std::min(begun, to);
  const double busy = seconds_of(to - begun);
  const double usual = typical_of(b.worker).value_or(busy) * std::max<std::uint32_t>(b.samples, 1);
  const auto pace = workers_.pace_of(b.worker);
  const double reading = reads ? 1 : pace ? pace->reading : 0;
  std::int64_t stalls = to;
  if (busy > stalled_from * usual && busy - usual > stalled_seconds && others_are_ready(b, to, facts)) {
    stalls = std::clamp(begun + static_cast<std::int64_t>(usual_part * usual * 1e9), from, to);
    buckets_.add_stall({b.worker, busy, {}, still_loads}, workers_.core_use_of(b.worker).starved, stalls, to);
  }
  add_work(b.worker, reading, from, stalls);
}

/// For a pool: attributes the time since the last look to limits.
void stream_limits::sample_jobs(std::int64_t now, const limit_facts& facts) {
  const limited_jobs& jobs = *facts.jobs;
  const auto waited_before = std::exchange(consumer_waited_, jobs.consumer_waited);
  if (looked_ == 0 || facts.is_over) return;
  const bool work_waits = jobs.waiting > 0 || jobs.callers_wait;
  add_slow_loads(jobs.slow_loads);
  if (jobs.callers_hold_everything) return buckets_.add_held(looked_, now);
  if (jobs.consumer_waited) return sample_batches(now, facts, waited_before);
  if (!work_waits && jobs.running == 0) return buckets_.add(limit::consumer, looked_, now);
  const auto ready = static_cast<double>(std::ranges::count_if(facts.workers, &worker_look::ready));
  if (ready == 0) return buckets_.add(limit::start, looked_, now);
  const auto works = [](const worker_look& w) { return w.ready && w.busy; };
  const double busy = static_cast<double>(std::ranges::count_if(facts.workers, works)) / ready;
  buckets_.add(limit::decode, looked_, now, busy);
  const bool some_start = std::ranges::any_of(facts.workers, &worker_look::starts);
  const limit idle = !work_waits ? limit::consumer : some_start ? limit::start : limit::order;
  buckets_.add(idle, looked_, now, 1 - busy);
}

/// For a data loader: attributes the time since the last look. While the consumer waits, the state of the
/// workers shows what it waits for.
void stream_limits::sample_batches(std::int64_t now, const limit_facts& facts, std::optional<nanoseconds> waited_before) {
  if (!waited_before || now <= looked_) return;
  const double waits = std::clamp(seconds_of((*facts.jobs->consumer_waited - *waited_before).count()) / seconds_of(now - looked_), 0.0, 1.0);
  buckets_.add(limit::consumer, looked_, now, 1 - waits);
  const bool some_load = std::ranges::any_of(facts.workers, [](const worker_look& w) { return w.ready && w.busy; });
  const bool some_start = std::ranges::any_of(facts.workers, &worker_look::starts) || std::ranges::none_of(facts.workers, &worker_look::ready);
  if (!some_load) return buckets_.add(some_start ? limit::start : limit::order, looked_, now, waits);
  buckets_.add(limit::decode, looked_, now, waits);
}

void stream_limits::add_slow_loads(const std::vector<slow_load>& latest) {
  for (const slow_load& one : latest) {
    if (one.number <= slow_loads_seen_) continue;
    slow_loads_seen_ = one.number;
    ++slow_batches_;
    buckets_.add_slow({one.worker, seconds_of(one.sample.took.count()), one.sample.index, one.sample.name}, one.weight, ns_of(one.from), ns_of(one.to));
  }
}

/// For a data loader: its pool reports the part of each wait that lies before the last lease of a lost batch.
void stream_limits::add_lost_waits(const std::vector<lost_wait>& latest) {
  for (const lost_wait& one : latest) {
    if (one.number > 0 && one.number <= lost_waits_seen_) continue;
    (one.number > 0 ? lost_seconds_ : lost_now_) += cost_of(ns_of(one.first_leased), ns_of(one.from), ns_of(one.to));
    lost_waits_seen_ = std::max(lost_waits_seen_, one.number);
  }
}

/// Seconds that a worker usually needs for a sample. If it has loaded too little so far, the seconds of all workers.
std::optional<double> stream_limits::typical_of(std::uint32_t worker) const {
  if (const auto own = workers_.pace_of(worker); own && own->batches >= known_from) return own->seconds_a_sample;
  std::vector<double> all = workers_.loads();
  for (const auto& [position, b] : known_) {
    if (stamp(b, batch_stage::taken) == 0 && stamp(b, batch_stage::loaded) != 0)
      all.push_back(seconds_a_sample(b, b.slow_ns));
  }
  return all.empty() ? std::nullopt : std::optional(median(std::move(all)));
}

/// Whether at least half of the other workers' slots held loaded batches that waited for the head.
bool stream_limits::others_are_ready(const batch_passage& head, std::int64_t when,
                                     const limit_facts& facts) const {
  const auto others = std::ranges::count_if(
      facts.workers, [&](const worker_look& w) { return w.ready && w.id != head.worker; });
  const auto slots = static_cast<std::size_t>(others) * facts.slots_per_worker;
  std::size_t ready = 0;
  for (auto one = known_.upper_bound(head.position); one != known_.end(); ++one) {
    const std::int64_t loaded = stamp(one->second, batch_stage::loaded);
    if (loaded != 0 && loaded <= when) ++ready;
  }
  return slots > 0 && 2 * ready >= slots;
}

/// Whether the next batch was leased only after this batch was copied and its slot was free. If so, there are
/// too few slots to load and copy at the same time.
bool stream_limits::nothing_was_behind(const batch_passage& b) const {
  const auto next = known_.find(b.position + 1);
  return next != known_.end() && stamp(next->second, batch_stage::leased) >= stamp(b, batch_stage::copied);
}

limit_reading stream_limits::read(std::int64_t now, const limit_facts& facts) const {
  limit_reading r = buckets_.read(now, ns_of(facts.begun));
  // Compute the factor from the same times as `loads`: the factor noted during the wait may belong to a
  // process that has been replaced.
  if (const auto slowness = r.slow ? workers_.slowness_of(r.slow->worker) : std::nullopt; slowness && *slowness >= slow_from) {
    r.slow->factor = *slowness;
  } else {
    r.slow.reset();
  }
  if (const auto most = facts.jobs ? facts.jobs->consumer_waited : std::optional(nanoseconds::max()))
    r.lost_seconds = std::max(last_.lost_seconds.value_or(0), std::min(lost_seconds_ + lost_now_, seconds_of(most->count())));
  r.slow_batches = slow_batches_;
  const worker_measures::time_spent workers = workers_.time();
  r.working = workers.busy / r.seconds;
  r.spare = facts.jobs ? 0 : std::min(workers_.spare_seconds(buckets_.window_from(now, ns_of(facts.begun)), waits_from_) / r.seconds, 1.0);
  const auto part = [](double seconds, double whole) { return whole > 0 ? std::min(seconds / whole, 1.0) : 0; };
  r.cpu = part(workers.cpu, workers.ready);
  // `busy` is sampled, but the other two are measured. A thread that runs or waits for a core is busy, so
  // `busy` is at least their sum.
  r.core_wait = std::min(part(workers.core_wait, workers.ready), 1 - r.cpu);
  r.busy = std::max(part(workers.busy, workers.ready), r.cpu + r.core_wait);
  r.start_core_wait = part(workers.start_core_wait, workers.starting);
  r.workers = static_cast<std::uint32_t>(std::ranges::count_if(facts.workers, &worker_look::ready));
  r.remote = static_cast<std::uint32_t>(std::ranges::count_if(facts.workers, [](const worker_look& w) { return w.ready && w.remote; }));
  for (const worker_look& w : facts.workers) {
    const auto pace = workers_.pace_of(w.id);
    if (w.ready && pace) r.loads.push_back({w.id, pace->seconds_a_sample, workers_.without_core_wait(w.id, pace->reading)});
  }
  return r;
}

}  // namespace penstock::telemetry
