#include "runtime/base/batch_times.hpp"

#include <algorithm>
#include <bit>

namespace penstock {
namespace {

constexpr stream_position nobody = ~stream_position{0};

constexpr std::array<stage_span, 8> spans{{
    {"lease", batch_stage::leased, batch_stage::begun},
    {"load", batch_stage::begun, batch_stage::loaded},
    {"order", batch_stage::loaded, batch_stage::ordered},
    {"buffer", batch_stage::ordered, batch_stage::submitted},
    {"copy", batch_stage::submitted, batch_stage::copied},
    {"convert", batch_stage::copied, batch_stage::ready},
    {"hand_over", batch_stage::ready, batch_stage::taken},
    {"use", batch_stage::taken, batch_stage::released},
}};

/// Upper bounds of histogram buckets in nanoseconds. Each is more than twice the one before: see bucket_of().
constexpr std::array<std::int64_t, 15> bounds_ns{10'000,        30'000,         100'000,        300'000,       1'000'000,
                                                 3'000'000,     10'000'000,     30'000'000,     100'000'000,   300'000'000,
                                                 1'000'000'000, 3'000'000'000,  10'000'000'000, 30'000'000'000, 100'000'000'000};

/// Maps the number of bits in a time to the bucket of the shortest time with that many bits.
constexpr auto first_bucket = [] {
  std::array<std::uint8_t, 64> buckets{};
  for (std::size_t bits = 1; bits < buckets.size(); ++bits) {
    while (buckets[bits] < bounds_ns.size() && bounds_ns[buckets[bits]] < std::int64_t{1} << (bits - 1)) ++buckets[bits];
  }
  return buckets;
}();

/// Does not search, because the GPU owner's thread calls it for every span of every batch.
std::size_t bucket_of(std::int64_t ns) noexcept {
  const std::size_t bucket = first_bucket[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(ns)))];
  return bucket < bounds_ns.size() && ns > bounds_ns[bucket] ? bucket + 1 : bucket;
}

std::int64_t as_ns(steady_time when) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

/// Only one thread writes, so no atomic addition is needed.
template <class Number>
void add(std::atomic<Number>& to, Number more) noexcept {
  to.store(to.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

constexpr std::size_t index_of(batch_stage s) noexcept {
  return static_cast<std::size_t>(s);
}

}  // namespace

std::string_view name_of(batch_stage stage) noexcept {
  constexpr std::array<std::string_view, batch_stages> names{
      "leased", "begun", "loaded", "ordered", "submitted", "copied", "ready", "taken", "released"};
  return names[index_of(stage)];
}

const std::array<stage_span, 8>& stage_spans() noexcept {
  return spans;
}

const std::vector<double>& stage_bounds_seconds() noexcept {
  static const std::vector<double> bounds = [] {
    std::vector<double> all;
    for (const std::int64_t ns : bounds_ns) all.push_back(static_cast<double>(ns) / 1e9);
    return all;
  }();
  return bounds;
}

batch_stage batch_passage::reached() const noexcept {
  for (std::size_t i = batch_stages; i-- > 0;) {
    if (at[i] != 0) return static_cast<batch_stage>(i);
  }
  return batch_stage::leased;
}

// Fields are atomics because readers run concurrently with writers. `position` tells a reader whether they
// are consistent: it is cleared before the others change and set last.
struct batch_times::entry {
  std::atomic<stream_position> position{nobody};
  std::atomic<std::uint64_t> number{0};
  std::atomic<std::uint64_t> epoch{0};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint32_t> worker{0};
  std::atomic<std::uint32_t> incarnation{0};
  std::atomic<std::uint32_t> slot{0};
  std::atomic<std::uint32_t> samples{0};
  std::array<std::atomic<std::int64_t>, batch_stages> at{};
  std::atomic<std::int64_t> first_leased{0};
  std::atomic<std::int64_t> demanded{0};
  std::atomic<std::int64_t> reading_ns{0};
  std::atomic<std::int64_t> slow_ns{0};
  std::atomic<std::int64_t> slowest_ns{0};
  std::atomic<std::uint64_t> slowest{0};
};

struct batch_times::tally {
  std::array<std::atomic<std::uint64_t>, bounds_ns.size() + 1> counts{};
  std::atomic<std::int64_t> nanoseconds{0};
};

batch_times::batch_times(std::size_t capacity)
    : capacity_(capacity),
      ring_(std::make_unique<entry[]>(capacity)),
      tallies_(std::make_unique<tally[]>(spans.size())) {}

batch_times::~batch_times() = default;

void batch_times::lease(const batch_passage& batch, steady_time now) noexcept {
  entry& e = ring_[batch.position % capacity_];
  const auto before = e.position.load(std::memory_order_relaxed) == batch.position ? read(e) : std::nullopt;
  const bool was_lost = before && before->number == 0 && before->reached() < batch_stage::loaded;
  const std::int64_t first = !was_lost ? 0 : before->first_leased != 0 ? before->first_leased : before->time_of(batch_stage::leased);
  e.position.store(nobody, std::memory_order_release);
  e.number.store(0, std::memory_order_relaxed);
  e.epoch.store(batch.epoch, std::memory_order_relaxed);
  e.sequence.store(batch.sequence, std::memory_order_relaxed);
  e.worker.store(batch.worker, std::memory_order_relaxed);
  e.incarnation.store(batch.incarnation, std::memory_order_relaxed);
  e.slot.store(batch.slot, std::memory_order_relaxed);
  e.samples.store(batch.samples, std::memory_order_relaxed);
  for (auto& stamp : e.at) stamp.store(0, std::memory_order_relaxed);
  e.first_leased.store(first, std::memory_order_relaxed);
  e.demanded.store(0, std::memory_order_relaxed);
  for (auto* time : {&e.reading_ns, &e.slow_ns, &e.slowest_ns}) time->store(0, std::memory_order_relaxed);
  e.at[index_of(batch_stage::leased)].store(as_ns(now), std::memory_order_relaxed);
  e.position.store(batch.position, std::memory_order_release);
}

void batch_times::note(stream_position position, batch_stage stage, steady_time when) noexcept {
  entry& e = ring_[position % capacity_];
  if (e.position.load(std::memory_order_acquire) != position) return;
  e.at[index_of(stage)].store(as_ns(when), std::memory_order_release);
  if (stage == batch_stage::released) finish(e);
}

std::optional<batch_passage> batch_times::find(stream_position position) const noexcept {
  auto found = read(ring_[position % capacity_]);
  return found && found->position == position ? found : std::nullopt;
}

void batch_times::note_demanded(stream_position position, steady_time when) noexcept {
  entry& e = ring_[position % capacity_];
  if (e.position.load(std::memory_order_acquire) == position)
    e.demanded.store(as_ns(when), std::memory_order_relaxed);
}

nanoseconds batch_times::note_loaded(stream_position position, const load_times& times, steady_time when) noexcept {
  entry& e = ring_[position % capacity_];
  const std::int64_t leased = e.at[index_of(batch_stage::leased)].load(std::memory_order_relaxed);
  const std::int64_t possible = std::max<std::int64_t>(as_ns(when) - leased, 0);
  const std::int64_t took = std::clamp<std::int64_t>(times.busy.count(), 0, possible);
  if (e.position.load(std::memory_order_acquire) == position) {
    const auto part = [took](nanoseconds time) { return std::clamp<std::int64_t>(time.count(), 0, took); };
    e.reading_ns.store(part(times.reading), std::memory_order_relaxed);
    e.slow_ns.store(part(times.slow), std::memory_order_relaxed);
    e.slowest_ns.store(part(times.slowest), std::memory_order_relaxed);
    e.slowest.store(times.slowest_sample, std::memory_order_relaxed);
  }
  note(position, batch_stage::begun, when - nanoseconds(took));
  note(position, batch_stage::loaded, when);
  return nanoseconds(took);
}

void batch_times::finish(entry& e) noexcept {
  if (e.number.load(std::memory_order_relaxed) != 0) return;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::int64_t from = e.at[index_of(spans[i].from)].load(std::memory_order_relaxed);
    const std::int64_t to = e.at[index_of(spans[i].to)].load(std::memory_order_relaxed);
    if (from == 0 || to < from) continue;
    add(tallies_[i].counts[bucket_of(to - from)], std::uint64_t{1});
    add(tallies_[i].nanoseconds, to - from);
  }
  const std::uint64_t number = released_.load(std::memory_order_relaxed) + 1;
  e.number.store(number, std::memory_order_release);
  released_.store(number, std::memory_order_release);
}

void batch_times::forget() noexcept {
  add(seeks_, std::uint64_t{1});
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (ring_[i].number.load(std::memory_order_relaxed) == 0)
      ring_[i].position.store(nobody, std::memory_order_release);
  }
}

std::optional<batch_passage> batch_times::read(const entry& e) const noexcept {
  batch_passage b;
  b.position = e.position.load(std::memory_order_acquire);
  if (b.position == nobody) return std::nullopt;
  b.number = e.number.load(std::memory_order_acquire);
  b.epoch = e.epoch.load(std::memory_order_relaxed);
  b.sequence = e.sequence.load(std::memory_order_relaxed);
  b.worker = e.worker.load(std::memory_order_relaxed);
  b.incarnation = e.incarnation.load(std::memory_order_relaxed);
  b.slot = e.slot.load(std::memory_order_relaxed);
  b.samples = e.samples.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < batch_stages; ++i) b.at[i] = e.at[i].load(std::memory_order_acquire);
  b.first_leased = e.first_leased.load(std::memory_order_relaxed);
  b.demanded = e.demanded.load(std::memory_order_relaxed);
  b.reading_ns = e.reading_ns.load(std::memory_order_relaxed);
  b.slow_ns = e.slow_ns.load(std::memory_order_relaxed);
  b.slowest_ns = e.slowest_ns.load(std::memory_order_relaxed);
  b.slowest = e.slowest.load(std::memory_order_relaxed);
  if (e.position.load(std::memory_order_acquire) != b.position) return std::nullopt;
  return b;
}

std::vector<batch_passage> batch_times::released_after(std::uint64_t number, std::size_t limit) const {
  std::vector<batch_passage> found;
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (ring_[i].number.load(std::memory_order_acquire) <= number) continue;
    if (auto b = read(ring_[i]); b && b->number > number) found.push_back(*b);
  }
  // The ring is in strict order except where it wraps around.
  std::ranges::rotate(found, std::ranges::is_sorted_until(found, {}, &batch_passage::number));
  if (!std::ranges::is_sorted(found, {}, &batch_passage::number)) std::ranges::sort(found, {}, &batch_passage::number);
  if (found.size() > limit) found.resize(limit);
  return found;
}

std::vector<batch_passage> batch_times::under_way() const {
  std::vector<batch_passage> found;
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (ring_[i].number.load(std::memory_order_acquire) != 0) continue;
    if (auto b = read(ring_[i]); b && b->number == 0) found.push_back(*b);
  }
  std::ranges::sort(found, {}, &batch_passage::position);
  return found;
}

std::vector<stage_histogram> batch_times::histograms() const {
  std::vector<stage_histogram> all(spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (const auto& count : tallies_[i].counts) {
      all[i].counts.push_back(count.load(std::memory_order_relaxed));
      all[i].total += all[i].counts.back();
    }
    all[i].seconds = static_cast<double>(tallies_[i].nanoseconds.load(std::memory_order_relaxed)) * 1e-9;
  }
  return all;
}

}  // namespace penstock
