#include "runtime/telemetry/stream_limits.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock::telemetry {
namespace {

constexpr std::int64_t bucket_ns = 100'000'000;
constexpr std::int64_t kept_ns = 2 * nanoseconds(stream_limits::span).count();  // a wait must be settled within this time
constexpr std::size_t known_max = 8192;  // number of passages; far more than any stream has in flight
constexpr std::size_t pauses_max = 64;  // the most pauses while the consumer waits for one batch

// A head is stalled if loading takes this many times as long as its worker's usual batch, and also exceeds it by
// stalled_seconds. Only the time beyond `usual_part` times the usual counts as stalled.
constexpr double stalled_from = 4;
constexpr double stalled_seconds = 0.02;
constexpr double usual_part = 1.5;
// A worker counts as slow if it needs this many times as long as its peers.
constexpr double slow_from = 2.5;
constexpr std::size_t known_from = 3;  // number of batches after which a worker's own time for a sample is known
constexpr std::size_t slow_samples_kept = 3;

std::int64_t ns_of(steady_time when) {
  return nanoseconds(when.time_since_epoch()).count();
}

/// Keeps one entry for each sample, and at most slow_samples_kept.
void keep_slowest(std::vector<limit_reading::awaited_sample>& samples) {
  const auto is_less = [](const limit_reading::awaited_sample& a, const limit_reading::awaited_sample& b) { return a.seconds > b.seconds; };
  std::ranges::sort(samples, is_less);
  std::vector<limit_reading::awaited_sample> kept;
  for (const limit_reading::awaited_sample& one : samples) {
    const auto is_same = [&](const limit_reading::awaited_sample& other) {
      return one.sample ? one.sample == other.sample && one.name == other.name : !other.sample && one.worker == other.worker;
    };
    if (kept.size() < slow_samples_kept && std::ranges::none_of(kept, is_same)) kept.push_back(one);
  }
  samples = std::move(kept);
}

std::int64_t stamp(const batch_passage& b, batch_stage s) {
  return b.time_of(s);
}

}  // namespace

limit_reading stream_limits::look(steady_time when, const limit_facts& facts) {
  // The first look after the end must still settle the last batches.
  if (std::exchange(over_, facts.is_over) && over_) return last_;
  const std::int64_t now = ns_of(when);
  const std::int64_t oldest = (now - nanoseconds(span).count()) / bucket_ns;
  std::erase_if(settled_, [&](const auto& b) { return b.first < oldest; });
  estimated_.clear();
  waits_from_ = 0;
  oldest_ = now - kept_ns;
  if (looked_ > 0 && now - looked_ > nanoseconds(longest_turn).count()) forget_until(now);
  if (std::exchange(seeks_, facts.seeks) != facts.seeks) forget_batches();
  lost_now_ = 0;
  if (facts.begun == never) return last_ = {};
  note_pause(now, facts);
  note_outage(now, facts);
  if (!facts.jobs) note_lost(now, facts);
  const bool owner_is_away = !outages_.empty() && outages_.back().to == now;
  workers_.look(now, looked_, facts.workers, {.is_paused = facts.is_paused, .owner_is_away = owner_is_away});
  if (facts.jobs) {
    sample_jobs(now, facts);
    if (began_ == 0 && facts.jobs->any_ended) began_ = now;
  } else {
    remember(facts);
    into_ = &estimated_;
    estimate(now, facts);
    into_ = &settled_;
  }
  looked_ = now;
  limit_reading found = read(now, facts);
  // If a run is stopped while it is stuck, it has waited for a batch that never arrives, so that wait is never settled.
  if (facts.is_over && !found.largest()) return last_;
  return last_ = std::move(found);
}

/// Call it after this process or its machine was suspended, because that time says nothing about the stream.
void stream_limits::forget_until(std::int64_t now) {
  forget_batches();
  settled_.clear();
  workers_.forget_times();
  outages_.clear();
  looked_ = counted_from_ = now;
}

/// A wait for them is never settled, but the time that deaths have cost so far still counts.
void stream_limits::forget_batches() {
  lost_seconds_ = last_.lost_seconds.value_or(0);
  down_ = frozen_ = 0;
  lost_.clear();
  std::erase_if(known_, [](const auto& one) { return stamp(one.second, batch_stage::taken) == 0; });
}

stream_limits::bucket& stream_limits::at(std::int64_t ns) {
  return (*into_)[ns / bucket_ns];
}

/// Calls act(from, to) for the part of the interval in each bucket, without pauses and what is not counted any more.
template <class Act>
void stream_limits::spread(std::int64_t from, std::int64_t to, Act act) const {
  from = std::max({from, counted_from_, oldest_});
  while (from < to) {
    const auto pause = std::ranges::find_if(pauses_, [from](const interval& p) { return p.to > from; });
    if (pause != pauses_.end() && pause->from <= from) {
      from = pause->to;
      continue;
    }
    std::int64_t end = std::min(to, (from / bucket_ns + 1) * bucket_ns);
    if (pause != pauses_.end()) end = std::min(end, pause->from);
    act(from, end);
    from = end;
  }
}

void stream_limits::add(limit what, std::int64_t from, std::int64_t to, double weight) {
  spread(from, to, [&](std::int64_t first, std::int64_t last) {
    while (first < last) {
      std::int64_t end = last;
      // Without an owner, no batch can be taken, so this overrides any other cause.
      limit cause = what;
      for (const interval& o : outages_) {
        if (first >= o.from && first < o.to) cause = limit::start;
        for (const std::int64_t edge : {o.from, o.to})
          if (edge > first) end = std::min(end, edge);
      }
      const double seconds = seconds_of(end - first) * weight;
      at(first).seconds[static_cast<std::size_t>(cause)] += seconds;
      if (began_ == 0) at(first).of_beginning[static_cast<std::size_t>(cause)] += seconds;
      first = end;
    }
  });
}

void stream_limits::add_to(double bucket::*figure, std::int64_t from, std::int64_t to, double weight) {
  spread(from, to, [&](std::int64_t first, std::int64_t last) { at(first).*figure += seconds_of(last - first) * weight; });
}

/// Attributes time in which the consumer asked for a batch while it held every buffer.
void stream_limits::add_held(std::int64_t from, std::int64_t to) {
  add(limit::consumer, from, to);
  add_to(&bucket::held, from, to);
}

/// Attributes time in which the batch was on its way from a loader host.
void stream_limits::add_link(std::int64_t from, std::int64_t to) {
  add(limit::wire, from, to);
  add_to(&bucket::link, from, to);
}

/// `from` to `to` is the stalled part of the head's load. If its worker had no core, that part is not the head's fault.
void stream_limits::add_stall(const limit_reading::stalled_head& head, std::int64_t from, std::int64_t to) {
  const double starved = workers_.core_use_of(head.worker).starved;
  add(limit::order, from, to, 1 - starved);
  add_no_core(starved, from, to);
  add_to(&bucket::stalled, from, to, 1 - starved);
  bucket& b = at(to);
  if (!b.stall || b.stall->seconds < head.seconds) b.stall = head;
}

/// Attributes the part of this time in which the head's worker had no core.
void stream_limits::add_no_core(double weight, std::int64_t from, std::int64_t to) {
  if (weight <= 0) return;
  add(limit::decode, from, to, weight);
  if (!is_settling_the_first()) add_to(&bucket::no_core, from, to, weight);
}

/// Counts the part of this time in which the head's worker loaded slow samples. Does not attribute it to a limit.
void stream_limits::add_slow(const limit_reading::awaited_sample& sample, double weight, std::int64_t from, std::int64_t to) {
  if (weight <= 0 || from >= to || is_settling_the_first()) return;
  add_to(&bucket::slow_seconds, from, to, weight);
  if (into_ == &settled_) spread(from, to, [&](std::int64_t first, std::int64_t last) { slow_seconds_ += seconds_of(last - first) * weight; });
  at(to).slow_samples.push_back(sample);
  keep_slowest(at(to).slow_samples);
}

/// Attributes time in which the stream waited for a batch that workers lost one after the other. The time in which a
/// worker had it counts as work, and the time after that, until it was leased `again`, as start. Each worker that
/// died is charged from its own lease on.
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
    add(limit::start, ended, next);
    if (one.died) charged = one.of.worker;
    spread(leased, is_last ? to : next, [&](std::int64_t first, std::int64_t last) { at(first).lost[charged] += seconds_of(last - first); });
  }
}

/// The seconds of a wait that deaths cost. Unlike in the shares, the whole wait counts, however long it is, but not
/// pauses.
double stream_limits::cost_of(const std::vector<earlier_lease>& held, std::int64_t from, std::int64_t to) const {
  const interval all{std::max({from, stamp(held.front().of, batch_stage::leased), counted_from_}), to};
  const auto within = [&all](const interval& part) { return std::max<std::int64_t>(std::min(part.to, all.to) - std::max(part.from, all.from), 0); };
  std::int64_t cost = within(all);
  for (const interval& pause : pauses_) cost -= within(pause);
  return seconds_of(cost);
}

const worker_look* stream_limits::look_of(const batch_passage& b, const limit_facts& facts) {
  const auto is_its = [&b](const worker_look& w) { return w.id == b.worker && w.incarnation == b.incarnation && w.ready; };
  if (facts.sacrificial && is_its(*facts.sacrificial)) return &*facts.sacrificial;
  const auto found = std::ranges::find_if(facts.workers, is_its);
  return found == facts.workers.end() ? nullptr : &*found;
}

/// Records the lease of a batch whose worker has died, or that the sacrificial worker has tried for the last one. (A late batch
/// can also have two workers: both are alive.)
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
    if (lives && is_noted && !is_leased_again) {  // its worker leased it before the worker's own state was known
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
  while (!pauses_.empty() && (pauses_.front().to < std::min(now - kept_ns, taken_) || pauses_.size() > pauses_max)) pauses_.pop_front();
  if (!was_paused && !paused_) return;
  if (!pauses_.empty() && pauses_.back().to == looked_) {
    pauses_.back().to = now;
  } else {
    pauses_.push_back({looked_, now});
  }
}

/// Records the time since the last look as an outage if the owner could not work. Applies once the stream has begun.
void stream_limits::note_outage(std::int64_t now, const limit_facts& facts) {
  const bool down = !facts.device_ready && !facts.owner_is_frozen;
  while (!outages_.empty() && outages_.front().to < now - kept_ns) outages_.pop_front();
  const double frozen = std::exchange(frozen_, 0);
  if (std::exchange(owner_deaths_, facts.owner_deaths) != facts.owner_deaths) down_ += frozen;
  if (facts.jobs || taken_ == 0 || looked_ == 0 || facts.is_over || (!down && !facts.owner_is_frozen)) return;
  outages_.push_back({looked_, now});
  const double costs = !paused_ && (facts.owner_is_elsewhere || facts.waits_since) ? seconds_of(now - looked_) : 0;
  if (down) down_ += costs;
  if (facts.owner_is_frozen) frozen_ = frozen + costs;
  (down ? at(now).owner_down : at(now).owner_frozen) += seconds_of(now - looked_);
}

/// Records the progress of batches, and settles finished waits.
void stream_limits::remember(const limit_facts& facts) {
  // These are reported again, except those that vanished in a seek or with their worker.
  std::erase_if(known_, [](const auto& one) { return stamp(one.second, batch_stage::taken) == 0; });
  std::vector<const batch_passage*> taken;
  for (batch_passage b : facts.passages) {
    // If the owner runs in another process, the wait for a batch is unknown until the batch is reported as released.
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
    // Keep the batches that were taken last, because they show which batches followed a head. Batches at a later
    // position are from before a seek.
    const std::size_t kept = 4 * facts.slots_per_worker * std::max<std::size_t>(facts.workers.size(), 1);
    const stream_position last = taken.back()->position;
    std::erase_if(known_, [&](const auto& one) {
      return one.first + kept < last || (one.first > last && stamp(one.second, batch_stage::taken) != 0);
    });
  }
  while (known_.size() > known_max) known_.erase(known_.begin());
  while (lost_.size() > known_max) lost_.erase(lost_.begin());  // entries of batches that a seek has dropped
}

/// Attributes the consumer's wait for this batch, which it has taken.
void stream_limits::settle(const batch_passage& b, const limit_facts& facts) {
  const std::int64_t to = stamp(b, batch_stage::taken);
  const std::int64_t earliest = std::max(taken_, ns_of(facts.begun));
  // A sink asks for the first batch only once the stream is ready, but the first wait began with the stream.
  const bool is_known = taken_ != 0 && b.demanded != 0;
  const std::int64_t from = is_known ? std::clamp(b.demanded, earliest, to) : earliest;
  if (taken_ != 0) add(limit::consumer, earliest, from);
  workers_.consumer_waited(from, to);
  const auto part = [&](std::int64_t first, std::int64_t last, auto&& act) {
    first = std::max(first, from);
    last = std::min(last, to);
    if (first < last) act(first, last);
  };
  const auto is = [&](limit what) {
    return [this, what](std::int64_t first, std::int64_t last) { add(what, first, last); };
  };
  const std::int64_t leased = stamp(b, batch_stage::leased);
  const std::int64_t begun = std::max(stamp(b, batch_stage::begun), leased);
  const std::int64_t loaded = std::max(stamp(b, batch_stage::loaded), begun);
  const std::int64_t ordered = std::max(stamp(b, batch_stage::ordered), loaded);
  const std::int64_t submitted = std::max(stamp(b, batch_stage::submitted), ordered);
  const std::int64_t copied = std::max(stamp(b, batch_stage::copied), submitted);
  const std::int64_t converted = std::max(stamp(b, batch_stage::ready), copied);
  double cost = 0;
  if (const auto lost = lost_.find(b.position); lost != lost_.end()) {
    part(from, std::min(stamp(lost->second.front().of, batch_stage::leased), leased), is(limit::start));
    part(from, leased, [&](std::int64_t first, std::int64_t last) {
      add_lost(lost->second, first, last, last, facts);
      cost += cost_of(lost->second, first, last);
    });
    lost_.erase(lost);
  } else {
    part(from, leased, is(limit::start));
  }
  if (workers_.is_held_up_by_link(b.worker)) {
    part(leased, loaded, [&](std::int64_t first, std::int64_t last) { add_link(first, last); });
  } else {
    part(leased, begun, is(limit::order));
    part(begun, loaded, [&](std::int64_t first, std::int64_t last) { settle_load(b, first, last, facts); });
  }
  part(loaded, ordered, is(limit::order));
  part(ordered, submitted, [&](std::int64_t first, std::int64_t last) {
    // The first batch waits until the device is open; later ones until the consumer releases a buffer.
    if (taken_ == 0) return add(limit::start, first, last);
    add_held(first, last);
  });
  part(submitted, copied, is(nothing_was_behind(b) ? limit::order : limit::wire));
  part(copied, converted, is(limit::convert));
  if (converted > submitted && converted - submitted > copied - submitted)
    wire_part_ = static_cast<double>(copied - submitted) / static_cast<double>(converted - submitted);
  const bool slows = workers_.loaded(b);
  slow_batches_ += b.slow_ns > 0 && !slows ? 1 : 0;
  ++at(to).batches;
  at(to).samples += b.samples;
  // Workers and the owner may have been away at the same time.
  lost_seconds_ += std::min(cost + std::exchange(down_, 0), seconds_of(to - earliest));
  taken_ = to;
  if (began_ == 0) began_ = to;
  released_ = stamp(b, batch_stage::released);
}

/// Attributes the time in which the consumer waited while a worker loaded the head.
void stream_limits::settle_load(const batch_passage& b, std::int64_t from, std::int64_t to,
                                const limit_facts& facts) {
  const std::int64_t begun = stamp(b, batch_stage::begun);
  const std::int64_t loaded = stamp(b, batch_stage::loaded);
  const double reading = static_cast<double>(b.reading_ns) / static_cast<double>(loaded - begun);
  const double busy = seconds_of(loaded - begun);
  const double usual = typical_of(b.worker).value_or(busy) * std::max<std::uint32_t>(b.samples, 1);
  const auto sample = b.slowest_ns > 0 ? std::optional(b.slowest) : std::nullopt;
  if (b.slow_ns > 0 && !workers_.slows_all_samples(b.worker))
    add_slow({b.worker, seconds_of(b.slowest_ns), sample}, static_cast<double>(b.slow_ns) / static_cast<double>(loaded - begun), from, to);
  if (busy > stalled_from * usual && busy - usual > stalled_seconds &&
      others_are_ready(b, loaded - (to - from) / 2, facts)) {
    const auto excused = static_cast<std::int64_t>(usual_part * usual * 1e9);
    const std::int64_t stalls = std::clamp(begun + excused, from, to);
    add_work(b.worker, reading, from, stalls);
    return add_stall({b.worker, busy, sample}, stalls, to);
  }
  if (const auto slowness = workers_.slowness_of(b.worker); slowness && *slowness >= slow_from) {
    const double starved = workers_.starved(b.worker);
    at(to).slow = {b.worker, *slowness, *slowness * (1 - starved) < slow_from ? starved : 0};
    return add_work(b.worker, reading, from, to);
  }
  const double idle = workers_.idle_share();
  const std::int64_t works = to - static_cast<std::int64_t>(static_cast<double>(to - from) * idle);
  add_work(b.worker, reading, from, works);
  // If workers lack cores while they work, so does the session, which should give them more.
  const double starved = workers_.core_use_of(b.worker).starved;
  add(limit::order, works, to, 1 - starved);
  add_no_core(starved, works, to);
}

/// `reading`: the share of this time in timed reads. Only built-in datasets time their reads; everything else counts as decoding.
/// The time in which the worker had no core counts as decoding, too, even if it was in the middle of a read.
void stream_limits::add_work(std::uint32_t worker, double reading, std::int64_t from, std::int64_t to) {
  reading = std::clamp(reading, 0.0, 1.0);
  reading = workers_.without_core_wait(worker, reading);
  const double no_core = std::min(workers_.core_use_of(worker).starved, 1 - reading);
  add(limit::storage, from, to, reading);
  add(limit::decode, from, to, 1 - reading - no_core);
  add_no_core(no_core, from, to);
}

/// Attributes the time since the last batch was taken.
void stream_limits::estimate(std::int64_t now, const limit_facts& facts) {
  lost_now_ = down_;
  if (facts.is_over) return;
  const std::int64_t idle_since = taken_ == 0 ? ns_of(facts.begun) : taken_;
  std::int64_t waits = now;
  if (facts.waits_since) {
    // The start of a wait in another process is known only from its last report.
    const std::int64_t since =
        facts.owner_is_elsewhere ? std::max(released_, idle_since) : ns_of(*facts.waits_since);
    waits = std::clamp(since, idle_since, now);
  }
  if (taken_ == 0) waits = idle_since;
  add(limit::consumer, idle_since, waits);
  if (waits < now) waits_from_ = waits;
  if (waits < now) estimate_head(waits, now, facts);
}

void stream_limits::estimate_head(std::int64_t from, std::int64_t now, const limit_facts& facts) {
  const auto not_taken = [](const auto& one) { return stamp(one.second, batch_stage::taken) == 0; };
  const auto found = std::ranges::find_if(known_, not_taken);
  const bool some_ready = std::ranges::any_of(facts.workers, &worker_look::ready);
  if (found == known_.end()) {
    if (!some_ready || !facts.device_ready) add(limit::start, from, now);
    return;
  }
  const batch_passage& head = found->second;
  switch (head.reached()) {
    case batch_stage::leased:
    case batch_stage::begun: return estimate_load(head, from, now, facts);
    case batch_stage::loaded: return add(limit::order, from, now);
    case batch_stage::ordered:
      if (!facts.device_ready) return add(limit::start, from, now);
      if (facts.owner_is_elsewhere) {  // timestamps arrive together with the batch
        add(limit::wire, from, now, wire_part_);
        return add(limit::convert, from, now, 1 - wire_part_);
      }
      return add_held(from, now);
    case batch_stage::submitted: return add(limit::wire, from, now);
    case batch_stage::copied: return add(limit::convert, from, now);
    default: return;  // ready, so the batch waits for the other ranks of a group
  }
}

void stream_limits::estimate_load(const batch_passage& head, std::int64_t from, std::int64_t now,
                                  const limit_facts& facts) {
  const worker_look* const w = look_of(head, facts);
  const bool is_tried_alone = facts.sacrificial && facts.sacrificial->id == head.worker;
  const std::int64_t leased = std::min(stamp(head, batch_stage::leased), now);
  const std::int64_t again = w == nullptr ? now : leased;  // until then no living worker had the batch
  if (const auto lost = lost_.find(head.position); lost != lost_.end()) {
    const std::vector<earlier_lease>& held = lost->second;
    const std::int64_t until = is_tried_alone ? now : again;
    add(limit::start, from, std::min(stamp(held.front().of, batch_stage::leased), again));
    add_lost(held, from, again, until, facts);
    lost_now_ = std::min(lost_now_ + cost_of(held, from, until), seconds_of(now - (taken_ == 0 ? ns_of(facts.begun) : taken_)));
  } else {
    add(limit::start, from, again);
  }
  if (w == nullptr) return;
  from = std::max(from, leased);
  if (workers_.is_held_up_by_link(head.worker)) return add_link(from, now);
  if (const auto usual = typical_of(head.worker)) {
    const auto usual_time = nanoseconds(static_cast<std::int64_t>(*usual * 1e9));
    if (is_slow_sample(w->sample_for, usual_time)) {
      const std::int64_t slow_since = std::max(from, now - (w->sample_for - usual_time).count());
      add_slow({head.worker, seconds_of(w->sample_for.count()), {}}, 1 - workers_.core_use_of(head.worker).starved, slow_since, now);
    }
  }
  add_unfinished(head, from, now, w->reads, true, facts);
}

/// Attributes the time until `to` in which the consumer waited while a worker loaded the
/// head, and did not finish. `reads`: it was reading then. `still_loads`: `to` is now.
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
    add_stall({b.worker, busy, {}, still_loads}, stalls, to);
  }
  add_work(b.worker, reading, from, stalls);
}

/// Attributes the time since the last call to a limit, for a pool.
void stream_limits::sample_jobs(std::int64_t now, const limit_facts& facts) {
  const limited_jobs& jobs = *facts.jobs;
  const auto waited_before = std::exchange(consumer_waited_, jobs.consumer_waited);
  if (looked_ == 0 || facts.is_over) return;
  const bool work_waits = jobs.waiting > 0 || jobs.callers_wait;
  add_slow_loads(jobs.slow_loads);
  if (jobs.callers_hold_everything) return add_held(looked_, now);
  if (jobs.consumer_waited) return sample_batches(now, facts, waited_before);
  if (!work_waits && jobs.running == 0) return add(limit::consumer, looked_, now);
  const auto ready = static_cast<double>(std::ranges::count_if(facts.workers, &worker_look::ready));
  if (ready == 0) return add(limit::start, looked_, now);
  const auto works = [](const worker_look& w) { return w.ready && w.busy; };
  const double busy = static_cast<double>(std::ranges::count_if(facts.workers, works)) / ready;
  add(limit::decode, looked_, now, busy);
  const bool some_start = std::ranges::any_of(facts.workers, &worker_look::starts);
  const limit idle = !work_waits ? limit::consumer : some_start ? limit::start : limit::order;
  add(idle, looked_, now, 1 - busy);
}

/// While a data loader's consumer waits, the state of the workers says what it waits for.
void stream_limits::sample_batches(std::int64_t now, const limit_facts& facts, std::optional<nanoseconds> waited_before) {
  if (!waited_before || now <= looked_) return;
  const double waits = std::clamp(seconds_of((*facts.jobs->consumer_waited - *waited_before).count()) / seconds_of(now - looked_), 0.0, 1.0);
  add(limit::consumer, looked_, now, 1 - waits);
  const bool some_load = std::ranges::any_of(facts.workers, [](const worker_look& w) { return w.ready && w.busy; });
  const bool some_start = std::ranges::any_of(facts.workers, &worker_look::starts) || std::ranges::none_of(facts.workers, &worker_look::ready);
  if (!some_load) return add(some_start ? limit::start : limit::order, looked_, now, waits);
  add(limit::decode, looked_, now, waits);
}

void stream_limits::add_slow_loads(const std::vector<slow_load>& latest) {
  for (const slow_load& one : latest) {
    if (one.number <= slow_loads_seen_) continue;
    slow_loads_seen_ = one.number;
    ++slow_batches_;
    add_slow({one.worker, seconds_of(one.sample.took.count()), one.sample.index, one.sample.name}, one.weight, ns_of(one.from), ns_of(one.to));
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

/// Whether the next batch was leased only once this one's slot was free. If so, there are too few slots to load and
/// copy at the same time.
bool stream_limits::nothing_was_behind(const batch_passage& b) const {
  const auto next = known_.find(b.position + 1);
  return next != known_.end() && stamp(next->second, batch_stage::leased) >= stamp(b, batch_stage::copied);
}

limit_reading stream_limits::read(std::int64_t now, const limit_facts& facts) const {
  limit_reading r;
  const std::int64_t span_ns = nanoseconds(span).count();
  const std::int64_t first = std::max({now - span_ns, ns_of(facts.begun), counted_from_});
  r.seconds = std::max(seconds_of(now - first), 1e-3);
  double stalled = 0;
  std::map<std::uint32_t, double> lost;
  for (const auto* all : {&settled_, &estimated_}) {
    for (const auto& [time, b] : *all) {
      // Only part of the oldest bucket is within the window.
      const double inside =
          std::clamp(seconds_of((time + 1) * bucket_ns - (now - span_ns)) / seconds_of(bucket_ns), 0.0, 1.0);
      for (std::size_t i = 0; i < limit_count; ++i) r.share[i] += b.seconds[i] * inside;
      for (std::size_t i = 0; i < limit_count; ++i) r.share_of_beginning[i] += b.of_beginning[i] * inside;
      r.batches_per_second += static_cast<double>(b.batches);
      r.samples_a_batch += static_cast<double>(b.samples);
      r.held += b.held * inside;
      r.owner_frozen += b.owner_frozen * inside;
      r.owner_down += b.owner_down * inside;
      stalled += b.stalled * inside;
      r.link += b.link * inside;
      r.slow_share += b.slow_seconds * inside;
      r.no_core += b.no_core * inside;
      r.slow_samples.insert(r.slow_samples.end(), b.slow_samples.begin(), b.slow_samples.end());
      if (b.stall && (!r.stall || r.stall->seconds < b.stall->seconds)) r.stall = b.stall;
      if (b.slow) r.slow = b.slow;
      for (const auto& [worker, seconds] : b.lost) lost[worker] += seconds * inside;
    }
  }
  // Compute the factor from the same times as `loads`: the one noted during the wait may be that of a process that has been replaced.
  if (const auto slowness = r.slow ? workers_.slowness_of(r.slow->worker) : std::nullopt; slowness && *slowness >= slow_from) {
    r.slow->factor = *slowness;
  } else {
    r.slow.reset();
  }
  if (2 * stalled < r.of(limit::order)) r.stall.reset();
  keep_slowest(r.slow_samples);
  for (const auto& [worker, seconds] : lost) {
    const double share = std::min(seconds / r.seconds, 1.0);
    if (!r.lost || r.lost->share < share) r.lost = {worker, share};
  }
  for (double& share : r.share) share /= r.seconds;
  for (double& share : r.share_of_beginning) share /= r.seconds;
  r.beginning = std::clamp(seconds_of((began_ == 0 ? now : began_) - first) / r.seconds, 0.0, 1.0);
  if (!facts.jobs) r.lost_seconds = std::max(last_.lost_seconds.value_or(0), lost_seconds_ + lost_now_);
  r.slow_batches = slow_batches_;
  r.slow_seconds = slow_seconds_;
  const worker_measures::time_spent workers = workers_.time();
  r.working = workers.busy / r.seconds;
  for (double* share : {&r.held, &r.owner_frozen, &r.owner_down, &r.link, &r.slow_share, &r.no_core}) *share = std::min(*share / r.seconds, 1.0);
  r.spare = facts.jobs ? 0 : std::min(workers_.spare_seconds(first, waits_from_) / r.seconds, 1.0);
  const double sum = std::accumulate(r.share.begin(), r.share.end(), 0.0);
  if (sum > 1) {  // rounding at the window's edges
    for (double& share : r.share) share /= sum;
    for (double& share : r.share_of_beginning) share /= sum;
  }
  if (r.batches_per_second > 0) r.samples_a_batch /= r.batches_per_second;
  r.batches_per_second /= r.seconds;
  const auto part = [](double seconds, double whole) { return whole > 0 ? std::min(seconds / whole, 1.0) : 0; };
  r.cpu = part(workers.cpu, workers.ready);
  // `busy` is sampled, but the others are measured. A thread that runs or waits for a core counts as busy.
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
