// A pipeline computed batch by batch, for tests of stream_limits: workers with slots, one copy engine, a consumer. The slow part is known,
// so the test knows what to expect. Times are exact, and the test sets the clock.
#pragma once

#include "runtime/telemetry/stream_limits.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace penstock::testing {

using std::chrono::milliseconds;

struct made_up_load {
  nanoseconds busy{0};
  nanoseconds reading{0};  // how much of `busy`, at its beginning, the worker reads
  nanoseconds slow{0};     // how much longer than usual its slow samples take
  std::uint64_t slowest = 0;  // the slowest sample, if `slow` is not 0
  // Times of the loading thread, spread evenly over `busy`.
  nanoseconds core_wait{0};
  std::optional<nanoseconds> cpu{};  // empty: the thread runs whenever it does not read
};

struct pipeline_plan {
  std::uint32_t workers = 4;
  std::uint32_t slots = 3;
  std::uint32_t buffers = 4;
  std::uint32_t samples = 16;
  nanoseconds ready_after{0};  // when the workers are ready
  std::function<made_up_load(std::uint32_t worker, std::uint64_t batch)> load;
  std::function<nanoseconds(std::uint64_t batch)> copy;
  std::function<nanoseconds(std::uint64_t batch)> convert;
  std::function<nanoseconds(std::uint64_t batch)> consume;
  bool owner_is_elsewhere = false;
};

class made_up_pipeline {
 public:
  explicit made_up_pipeline(pipeline_plan plan) : plan_(std::move(plan)) {
    slots_.assign(plan_.workers, std::vector<std::int64_t>(plan_.slots, start_ns + plan_.ready_after.count()));
    free_at_.assign(plan_.workers, 0);
  }

  static constexpr std::int64_t start_ns = 3'600'000'000'000;
  static steady_time start() { return steady_time(nanoseconds(start_ns)); }

  /// The facts at a moment after the start; call with increasing times.
  telemetry::limit_facts facts_at(nanoseconds since_start) {
    const std::int64_t now = start_ns + since_start.count();
    while (batches_.empty() || batches_.back().at[0] <= now) make_batch();
    telemetry::limit_facts f;
    f.begun = start();
    f.slots_per_worker = plan_.slots;
    f.owner_is_elsewhere = plan_.owner_is_elsewhere;
    for (std::uint32_t w = 0; w < plan_.workers; ++w)
      f.workers.push_back({w, 1, since_start >= plan_.ready_after, since_start < plan_.ready_after, false, false, {}, {}});
    for (std::size_t i = forgotten_; i < batches_.size(); ++i) {
      const batch_passage& b = batches_[i];
      if (b.at[0] > now) break;
      see_work(f.workers[b.worker], b, loads_[i], now);
      if (b.at[8] > seen_) f.passages.push_back(as_seen(b, now));
      if (b.at[7] > now && b.demanded <= now && !f.waits_since)
        f.waits_since = steady_time(nanoseconds(b.demanded));
    }
    for (std::uint32_t w = 0; w < plan_.workers; ++w) {
      f.workers[w].cpu += nanoseconds(cpu_of_forgotten_[w]);
      f.workers[w].core_wait += nanoseconds(core_wait_of_forgotten_[w]);
    }
    while (forgotten_ < batches_.size() && batches_[forgotten_].at[8] <= seen_) forget();
    seen_ = now;
    return f;
  }

  /// Looks five times a second until then, and returns the last reading.
  telemetry::limit_reading run(nanoseconds from, nanoseconds until) {
    telemetry::limit_reading last;
    for (nanoseconds t = from; t <= until; t += milliseconds(200)) last = limits_.look(start() + t, facts_at(t));
    return last;
  }

 private:
  void make_batch() {
    batch_passage b;
    b.position = batches_.size();
    b.samples = plan_.samples;
    b.incarnation = 1;
    const batch_passage* before = batches_.empty() ? nullptr : &batches_.back();
    // Prefers a worker with a free slot, and among several the one that finishes first.
    std::int64_t leased = std::numeric_limits<std::int64_t>::max();
    for (const auto& slots : slots_) leased = std::min(leased, std::ranges::min(slots));
    if (before != nullptr) leased = std::max(leased, before->at[0]);
    std::uint32_t chosen = 0;
    std::int64_t soonest = std::numeric_limits<std::int64_t>::max();
    for (std::uint32_t w = 0; w < plan_.workers; ++w) {
      if (std::ranges::min(slots_[w]) > leased || free_at_[w] >= soonest) continue;
      chosen = w;
      soonest = free_at_[w];
    }
    b.worker = chosen;
    const made_up_load load = plan_.load(chosen, b.position);
    b.at[0] = leased;
    b.at[1] = std::max(leased, free_at_[chosen]);
    b.at[2] = free_at_[chosen] = b.at[1] + load.busy.count();
    b.reading_ns = load.reading.count();
    b.slow_ns = load.slow.count();
    b.slowest_ns = load.slow.count();
    b.slowest = load.slowest;
    loads_.push_back(load);
    b.at[3] = before == nullptr ? b.at[2] : std::max(b.at[2], before->at[3]);
    std::int64_t buffer = 0;
    if (b.position >= plan_.buffers) buffer = batches_[b.position - plan_.buffers].at[8];
    b.at[4] = std::max(b.at[3], buffer);
    b.at[5] = std::max(b.at[4], engine_) + plan_.copy(b.position).count();
    b.at[6] = engine_ = b.at[5] + plan_.convert(b.position).count();
    *std::ranges::min_element(slots_[chosen]) = b.at[5];
    b.demanded = before == nullptr ? start_ns : before->at[8];
    b.at[7] = std::max(b.at[6], b.demanded);
    b.at[8] = b.at[7] + plan_.consume(b.position).count();
    b.number = b.position + 1;
    batches_.push_back(b);
  }

  /// What one look shows of a batch.
  [[nodiscard]] batch_passage as_seen(batch_passage b, std::int64_t now) const {
    if (b.at[2] > now) b.at[1] = 0;  // a worker reports the beginning and the end of a load together
    const bool owner_has_told = !plan_.owner_is_elsewhere || b.at[8] <= now;
    for (std::size_t i = 1; i < batch_stages; ++i) {
      if (b.at[i] > now || (i >= 4 && !owner_has_told)) b.at[i] = 0;
    }
    if (b.at[7] == 0) b.demanded = 0;
    if (b.at[2] == 0) b.reading_ns = b.slow_ns = b.slowest_ns = 0;
    if (b.at[8] == 0) b.number = 0;
    return b;
  }

  static void see_work(worker_look& w, const batch_passage& b, const made_up_load& load, std::int64_t now) {
    if (b.at[1] <= now && now < b.at[2]) w.busy = true;
    if (b.at[1] <= now && now < b.at[1] + b.reading_ns) w.reads = true;
    const nanoseconds passed(std::max<std::int64_t>(std::min(now, b.at[2]) - b.at[1], 0));
    const auto [cpu, core_wait] = thread_times(load, passed);
    w.cpu += cpu;
    w.core_wait += core_wait;
  }

  /// CPU time and waits for a core after this part of a load.
  static std::pair<nanoseconds, nanoseconds> thread_times(const made_up_load& load, nanoseconds passed) {
    const auto part = [&](nanoseconds of) {
      return nanoseconds(static_cast<std::int64_t>(static_cast<double>(of.count()) * static_cast<double>(passed.count()) / static_cast<double>(std::max<std::int64_t>(load.busy.count(), 1))));
    };
    return {load.cpu ? part(*load.cpu) : std::max(passed - load.reading, nanoseconds(0)), part(load.core_wait)};
  }

  void forget() {
    const batch_passage& b = batches_[forgotten_];
    const auto [cpu, core_wait] = thread_times(loads_[forgotten_++], nanoseconds(b.at[2] - b.at[1]));
    cpu_of_forgotten_[b.worker] += cpu.count();
    core_wait_of_forgotten_[b.worker] += core_wait.count();
  }

  pipeline_plan plan_;
  telemetry::stream_limits limits_;
  std::vector<batch_passage> batches_;
  std::vector<made_up_load> loads_;  // the loads of `batches_`
  std::vector<std::vector<std::int64_t>> slots_;  // by worker: when each slot is free
  std::vector<std::int64_t> free_at_;             // by worker: when it can load its next batch
  std::map<std::uint32_t, std::int64_t> cpu_of_forgotten_;
  std::map<std::uint32_t, std::int64_t> core_wait_of_forgotten_;
  std::size_t forgotten_ = 0;
  std::int64_t engine_ = 0;
  std::int64_t seen_ = 0;
};

}  // namespace penstock::testing
