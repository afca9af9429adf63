#include "runtime/dataset/synthetic/synthetic.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/streaming_copy.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/order/philox.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace penstock {
namespace {

constexpr std::size_t stamp_step = 4 * KiB;
constexpr std::size_t stamp_size = 64;
/// Smaller copies go through the caches, where the device's DMA engine can read them.
constexpr std::size_t streamed_min = 256 * KiB;

nanoseconds now(clockid_t clock) noexcept {
  ::timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

void sleep_for(nanoseconds time) noexcept {
  const nanoseconds end = now(CLOCK_MONOTONIC) + time;
  const ::timespec until{static_cast<std::time_t>(end.count() / 1'000'000'000),
                         static_cast<long>(end.count() % 1'000'000'000)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void burn(nanoseconds time) noexcept {
  const nanoseconds end = now(CLOCK_THREAD_CPUTIME_ID) + time;
  while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
}

void copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
  if (from.size() >= streamed_min) return streaming_copy(to, from);
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

result<dataset_description> synthetic_dataset::describe(const dataset_config& config) {
  if (config.bytes_per_sample.has_value() == !config.shape.empty()) {
    return refuse(errc::dataset,
                  "a synthetic dataset needs either [dataset] bytes_per_sample or shape (with dtype){}",
                  config.shape.empty() ? "" : ", not both");
  }
  tensor_spec data{"data", config.dtype, config.shape, tensor_role::data};
  if (config.bytes_per_sample) {
    const std::uint64_t bytes = config.bytes_per_sample->bytes;
    if (bytes == 0 || bytes > 0xffffffffU) {
      return refuse(errc::dataset,
                    "bytes_per_sample = {} is not between 1 byte and 4 GiB; for larger samples set a shape",
                    bytes);
    }
    data.type = dtype::uint8;
    data.shape = {static_cast<std::uint32_t>(bytes)};
  }
  constexpr std::array fills{"stamp", "memset", "memcpy", "random"};
  fingerprint_hash hash("synthetic");
  hash.add_number(config.samples);
  hash.add_text(penstock::name_of(data.type));
  hash.add_number(data.shape.size());
  for (const std::uint32_t side : data.shape) hash.add_number(side);
  hash.add_text(fills.at(static_cast<std::size_t>(config.fill)));
  return dataset_description{"synthetic", config.samples, {std::move(data)}, hash.hex()};
}

synthetic_dataset::synthetic_dataset(const dataset_config& config, bool rows_are_own)
    : config_(config), rows_are_own_(rows_are_own) {
  for (const fault_config& fault : config.faults) faults_.emplace(fault.sample, fault);
}

dataset_description synthetic_dataset::describe() {
  return value_or_throw(describe(config_));
}

void synthetic_dataset::setup(const worker_context& context) {
  seed_ = context.seed;
  if (config_.fill != fill_kind::memcpy) return;
  const std::uint64_t sample_bytes = bytes_of(value_or_throw(describe(config_)).tensors.front());
  source_.resize(round_up(std::min<std::uint64_t>(sample_bytes, 4 * MiB), 4 * KiB));
  fill_random(philox_stream(random_domain::fill, 0, 0, 0), source_);
}

void synthetic_dataset::load(const sample_request& request, const sample_slot& slot) {
  const auto [first, last] = faults_.equal_range(request.index);
  for (auto fault = first; fault != last; ++fault) {
    if (fault->second.times == 0 || request.attempt <= fault->second.times) inject(fault->second);
  }
  if (config_.wait > nanoseconds::zero()) {
    const timed_read storage;
    sleep_for(config_.wait);
  }
  if (config_.work > nanoseconds::zero()) burn(config_.work);
  fill(request, slot.bytes(0));
}

void synthetic_dataset::fill(const sample_request& request, std::span<std::byte> out) {
  switch (config_.fill) {
    case fill_kind::stamp: return stamp(request.index, out);
    case fill_kind::memset:
      std::memset(out.data(), static_cast<int>(request.index & 0xffU), out.size());
      return;
    case fill_kind::random:
      return fill_random(philox_stream(random_domain::fill, seed_, request.epoch, request.index), out);
    case fill_kind::memcpy: break;
  }
  std::size_t from = request.index % (source_.size() / 64) * 64;
  while (!out.empty()) {
    const std::size_t piece = std::min(out.size(), source_.size() - from);
    copy(out.first(piece), std::span<const std::byte>(source_).subspan(from, piece));
    out = out.subspan(piece);
    from = 0;
  }
}

void synthetic_dataset::stamp(std::uint64_t index, std::span<std::byte> out) {
  constexpr std::size_t rows_max = 1U << 20U;  // more rows than a worker's slots usually have
  if (!rows_are_own_) {
    std::memset(out.data(), 0, out.size());
  } else if (!zeroed_.contains(out.data())) {
    if (zeroed_.size() >= rows_max) zeroed_.clear();  // clearing the list costs time, but results stay correct
    std::memset(out.data(), 0, out.size());
    zeroed_.insert(out.data());
  }
  std::array<std::uint64_t, stamp_size / sizeof index> pattern{};
  pattern.fill(index);
  for (std::size_t at = 0; at < out.size(); at += stamp_step) {
    std::memcpy(out.data() + at, pattern.data(), std::min(stamp_size, out.size() - at));
  }
}

}  // namespace penstock
