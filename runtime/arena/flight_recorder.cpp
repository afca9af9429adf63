#include "runtime/arena/flight_recorder.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/ids.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

namespace penstock::arena {

struct flight_page {
  static constexpr std::size_t name_max = 500;  // fits one page together with the other fields

  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint64_t> heartbeats{0};
  std::atomic<std::uint64_t> samples_done{0};
  std::atomic<std::uint64_t> rss_bytes{0};
  std::atomic<std::int32_t> thread{0};
  // Written before the release store to `word`, so a reader that sees the word also sees its name. While the worker
  // lives, a reader may see a half-written name. That is acceptable, because names are used only in messages.
  std::atomic<std::int64_t> since_ns{0};  // steady clock, shared by all processes
  std::atomic<std::int64_t> limit_ns{0};
  std::atomic<std::int64_t> waited_ns{0};       // excludes the wait in progress
  std::atomic<std::int64_t> waits_since_ns{0};  // 0: not waiting
  std::atomic<std::int64_t> reads_since_ns{0};  // 0: not reading
  std::atomic<std::uint32_t> name_bytes{0};
  std::array<char, name_max> name{};
  std::atomic<std::int64_t> named_ns{0};  // same clock as since_ns; 0: unknown
  std::atomic<std::uint64_t> sample{0};
  std::atomic<std::uint32_t> attempt{0};  // 0: the worker loads no samples
};
static_assert(sizeof(flight_page) <= page_bytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

namespace {

constexpr unsigned slot_shift = 4;
constexpr unsigned row_shift = 14;
constexpr unsigned generation_shift = 36;

}  // namespace

std::string_view preparation_in_words(phase p) noexcept {
  switch (p) {
    case phase::opening: return "opening the dataset";
    case phase::describing: return "describing the dataset";
    case phase::setup: return "setting up the dataset";
    default: return "";
  }
}

std::uint64_t pack(const flight_state& s) noexcept {
  return (static_cast<std::uint64_t>(s.at) & 0xfU) | (std::uint64_t{s.slot & 0x3ffU} << slot_shift) |
         (std::uint64_t{s.row & 0x3f'ffffU} << row_shift) |
         (std::uint64_t{s.generation & generation_mask} << generation_shift);
}

flight_state unpack(std::uint64_t word) noexcept {
  return {static_cast<phase>(word & 0xfU), static_cast<std::uint32_t>(word >> slot_shift) & 0x3ffU,
          static_cast<std::uint32_t>(word >> row_shift) & 0x3f'ffffU,
          static_cast<std::uint32_t>(word >> generation_shift) & generation_mask};
}

result<flight_recorders> flight_recorders::create(std::uint32_t workers) {
  auto file = create_memory_file("penstock-flight", "the flight recorder");
  if (!file) return tl::unexpected(std::move(file.error()));
  const std::size_t bytes = workers * page_bytes;
  if (::ftruncate(file->get(), static_cast<off_t>(bytes)) != 0) {
    return refuse_os(errc::system, errno, "setting the size of the flight recorder");
  }
  if (auto ok = seal_memory_file(file->get(), seal::size, "the flight recorder"); !ok)
    return tl::unexpected(std::move(ok.error()));
  mapping pages = map_shared(file->get(), {0, bytes});
  if (!pages) return refuse_os(errc::system, errno, "mapping the flight recorder");
  flight_recorders made(std::move(*file), std::move(pages));
  for (std::uint32_t i = 0; i < workers; ++i) made.clear(i);
  return made;
}

namespace {

/// The time limit of the work that `seen` shows. Returns 0 if the worker has moved on: that work can no
/// longer exceed its limit. If the limit read here belongs to the next work, the word has changed, too (see
/// publish).
nanoseconds limit_of(const flight_page& p, const flight_reading& seen) {
  if (seen.state.at != phase::loading) return nanoseconds(0);
  const nanoseconds limit(p.limit_ns.load(std::memory_order_acquire));
  return p.word.load(std::memory_order_relaxed) == seen.word ? limit : nanoseconds(0);
}

}  // namespace

nanoseconds flight_reading::waited_until(steady_time now) const noexcept {
  return waits_since ? waited + std::max(now - *waits_since, nanoseconds(0)) : waited;
}

flight_page& flight_recorders::page(std::uint32_t worker) const {
  PENSTOCK_CHECK((worker + 1) * page_bytes <= pages_.bytes().size(), "worker {}", worker);
  return *reinterpret_cast<flight_page*>(pages_.bytes().data() + worker * page_bytes);
}

void flight_recorders::clear(std::uint32_t worker) {
  new (&page(worker)) flight_page;
}

void flight_recorders::mirror(std::uint32_t worker, const flight_reading& seen) {
  flight_page& p = page(worker);
  p.heartbeats.store(seen.heartbeats, std::memory_order_relaxed);
  p.samples_done.store(seen.samples_done, std::memory_order_relaxed);
  p.rss_bytes.store(seen.rss_bytes, std::memory_order_relaxed);
  const auto reads_since = seen.reads_since.value_or(steady_time{});
  p.reads_since_ns.store(nanoseconds(reads_since.time_since_epoch()).count(), std::memory_order_relaxed);
  const std::size_t bytes = std::min(seen.sample_name.size(), flight_page::name_max);
  std::memcpy(p.name.data(), seen.sample_name.data(), bytes);
  p.name_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  p.since_ns.store(nanoseconds(seen.since.time_since_epoch()).count(), std::memory_order_relaxed);
  p.named_ns.store(seen.named_since ? nanoseconds(seen.named_since->time_since_epoch()).count() : 0, std::memory_order_relaxed);
  p.sample.store(seen.sample ? seen.sample->index : 0, std::memory_order_relaxed);
  p.attempt.store(seen.sample ? seen.sample->attempt : 0, std::memory_order_relaxed);
  if (p.limit_ns.load(std::memory_order_relaxed) != seen.limit.count()) {
    p.word.store(pack({phase::checking, 0, 0, 0}), std::memory_order_release);  // see publish()
    p.limit_ns.store(seen.limit.count(), std::memory_order_release);
  }
  p.word.store(pack(seen.state), std::memory_order_release);
}

flight_reading flight_recorders::read(std::uint32_t worker) const {
  const flight_page& p = page(worker);
  flight_reading now;
  now.word = p.word.load(std::memory_order_acquire);
  now.state = unpack(now.word);
  now.limit = limit_of(p, now);
  now.heartbeats = p.heartbeats.load(std::memory_order_relaxed);
  now.thread = p.thread.load(std::memory_order_relaxed);
  now.rss_bytes = p.rss_bytes.load(std::memory_order_relaxed);
  now.samples_done = p.samples_done.load(std::memory_order_relaxed);
  // With this order of reads, a wait that ends meanwhile may be missed, but is never counted twice: see wait_ends().
  now.waited = nanoseconds(p.waited_ns.load(std::memory_order_acquire));
  if (const std::int64_t since = p.waits_since_ns.load(std::memory_order_relaxed); since != 0)
    now.waits_since = steady_time(nanoseconds(since));
  if (const std::int64_t since = p.reads_since_ns.load(std::memory_order_relaxed); since != 0)
    now.reads_since = steady_time(nanoseconds(since));
  if (now.state.at != phase::idle) {
    const auto bytes =
        std::min<std::size_t>(p.name_bytes.load(std::memory_order_relaxed), flight_page::name_max);
    now.sample_name.assign(p.name.data(), bytes);
    if (const auto attempt = p.attempt.load(std::memory_order_relaxed); attempt > 0)
      now.sample = flight_sample{p.sample.load(std::memory_order_relaxed), attempt};
    now.since = steady_time(nanoseconds(p.since_ns.load(std::memory_order_relaxed)));
    if (const std::int64_t named = p.named_ns.load(std::memory_order_relaxed); named != 0)
      now.named_since = steady_time(nanoseconds(named));
  }
  return now;
}

result<flight_writer> flight_writer::map(int fd, std::uint32_t worker) {
  mapping page = map_shared(fd, {worker * page_bytes, page_bytes});
  if (!page) return refuse_os(errc::protocol, errno, "mapping the flight recorder");
  return flight_writer(std::move(page));
}

flight_page& flight_writer::page() const noexcept {
  return *reinterpret_cast<flight_page*>(page_.bytes().data());
}

void flight_writer::publish(const flight_state& state, std::string_view sample_name, nanoseconds limit,
                            steady_time since, std::optional<steady_time> named_since) noexcept {
  flight_page& p = page();
  // The word must not be `loading` while the limit changes. The release order makes the changed word visible before the
  // new limit: see limit_of().
  if (unpack(p.word.load(std::memory_order_relaxed)).at == phase::loading) publish(phase::checking);
  p.limit_ns.store(limit.count(), std::memory_order_release);
  const std::size_t bytes = std::min(sample_name.size(), flight_page::name_max);
  std::memcpy(p.name.data(), sample_name.data(), bytes);
  p.name_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  p.since_ns.store(nanoseconds(since.time_since_epoch()).count(), std::memory_order_relaxed);
  p.named_ns.store(nanoseconds(named_since.value_or(since).time_since_epoch()).count(), std::memory_order_relaxed);
  p.word.store(pack(state), std::memory_order_release);
}

void flight_writer::publish(const flight_state& state, std::string_view sample_name, const flight_sample& sample,
                            steady_time now) noexcept {
  page().sample.store(sample.index, std::memory_order_relaxed);
  page().attempt.store(sample.attempt, std::memory_order_relaxed);
  publish(state, sample_name, nanoseconds(0), now);
}

void flight_writer::publish(phase at) noexcept {
  flight_page& p = page();
  flight_state state = unpack(p.word.load(std::memory_order_relaxed));
  state.at = at;
  p.word.store(pack(state), std::memory_order_release);
}

void flight_writer::rest() noexcept {
  page().word.store(0, std::memory_order_release);
}

void flight_writer::this_thread_works(std::int32_t thread) noexcept {
  page().thread.store(thread, std::memory_order_relaxed);
}

void flight_writer::sample_done() noexcept {
  page().samples_done.fetch_add(1, std::memory_order_relaxed);
}

void flight_writer::wait_begins(steady_time now) noexcept {
  page().waits_since_ns.store(nanoseconds(now.time_since_epoch()).count(), std::memory_order_relaxed);
}

void flight_writer::wait_ends(steady_time now) noexcept {
  flight_page& p = page();
  const nanoseconds since(p.waits_since_ns.load(std::memory_order_relaxed));
  p.waits_since_ns.store(0, std::memory_order_relaxed);
  p.waited_ns.fetch_add((nanoseconds(now.time_since_epoch()) - since).count(), std::memory_order_release);
}

void flight_writer::beat(std::uint64_t rss_bytes, std::optional<steady_time> reads_since) noexcept {
  page().reads_since_ns.store(reads_since ? nanoseconds(reads_since->time_since_epoch()).count() : 0,
                              std::memory_order_relaxed);
  if (rss_bytes > 0) page().rss_bytes.store(rss_bytes, std::memory_order_relaxed);
  page().heartbeats.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace penstock::arena
