#include "actors/loader/lease_runner.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/thrown.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace penstock::loader {
namespace {

using namespace std::chrono_literals;

constexpr std::array storage_pauses{50ms, 200ms, 800ms};  // four attempts in total

// Longer names and reasons are not useful. protocol::cut_to_fit makes a whole batch fit a frame.
constexpr std::size_t text_bytes_max = 500;

void shorten_texts(std::vector<protocol::wire_row_failure>& failures) {
  for (protocol::wire_row_failure& f : failures) {
    f.name = shortened(printable(f.name), text_bytes_max);
    f.reason = shortened(printable(f.reason), text_bytes_max);
  }
}

std::uint32_t microseconds_since(steady_time then) {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - then);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(passed.count(), 0, UINT32_MAX));
}

/// collate() threw: the batch's rows have unknown contents.
void fail_all(const protocol::load_batch& lease, const Dataset& dataset, const std::string& reason,
              protocol::batch_loaded& report) {
  std::set<std::uint32_t> failed;
  for (const protocol::wire_row_failure& f : report.failures) failed.insert(f.row);
  for (std::uint32_t i = 0; i < lease.samples.size(); ++i) {
    if (!failed.contains(i)) report.failures.push_back({i, dataset.name_of(lease.samples[i].index), reason});
  }
  std::ranges::sort(report.failures, {}, &protocol::wire_row_failure::row);
  report.rows = 0;
}

// Random draws for a batch must not repeat those of its first sample.
constexpr std::uint64_t collate_stream = 0x636f'6c6c'6174'6521;

}  // namespace

lease_runner::lease_runner(const lease_context& context, std::function<void(std::chrono::milliseconds)> pause)
    : context_(context), pause_(std::move(pause)) {}

result<std::optional<protocol::batch_loaded>> lease_runner::run(const protocol::load_batch& lease) {
  if (lease.slot >= context_.slots.slots() || lease.samples.size() > context_.layout.rows_max) {
    return refuse(errc::protocol,
                  "it received a lease of slot {} with {} samples, but there are {} slots for {} samples",
                  lease.slot, lease.samples.size(), context_.slots.slots(), context_.layout.rows_max);
  }
  const auto begin = std::chrono::steady_clock::now();
  const nanoseconds read_before = time_spent_reading();
  static_cast<void>(times_.take());  // discards the times of a lease that was dropped
  protocol::batch_loaded report{lease.slot, lease.generation, 0, {}, 0, 0};
  const std::span<std::byte> slot = context_.slots.slot(lease.slot);
  std::vector<std::uint64_t> survivors;
  std::uint32_t last = 0;  // blamed if the process dies during collate()
  for (std::uint32_t i = 0; i < lease.samples.size(); ++i) {
    if (context_.stopping.load(std::memory_order_relaxed)) return std::nullopt;
    if (context_.dropped && context_.dropped(lease)) {
      context_.flight.rest();
      return protocol::batch_loaded{lease.slot, lease.generation, 0, {}, 0, 0};
    }
    const protocol::wire_sample& sample = lease.samples[i];
    std::string name = context_.dataset.name_of(sample.index);
    const auto started = std::chrono::steady_clock::now();
    times_.begins(started);
    context_.flight.publish({arena::phase::loading, lease.slot, i, lease.generation}, name, {sample.index, sample.attempt}, started);
    // Rows are compacted: the next sample overwrites the row of a failed one.
    std::string reason = load_row(sample, lease.epoch, slot, report.rows);
    if (context_.dropped) report.sample_us.push_back(microseconds_since(started));
    times_.ended(sample.index, name, std::chrono::steady_clock::now());
    if (context_.link != nullptr && context_.link->lost())
      context_.link->abort_after(fmt::format("loading sample {}", sample.index));
    context_.flight.publish(arena::phase::checking);
    if (cuda_.newly_found()) reason = child::cuda_text(context_.me.worker, reason);
    if (reason.empty()) {
      ++report.rows;
      survivors.push_back(sample.index);
      last = i;
    } else {
      report.failures.push_back({i, std::move(name), std::move(reason)});
    }
    context_.flight.sample_done();
  }
  if (report.rows > 0) {
    context_.flight.publish({arena::phase::collating, lease.slot, last, lease.generation},
                            context_.dataset.name_of(survivors.back()),
                            arena::flight_sample{survivors.back(), lease.samples[last].attempt});
    std::string reason = collate(lease.epoch, slot, survivors);
    if (context_.link != nullptr && context_.link->lost()) context_.link->abort_after("collating a batch");
    if (cuda_.newly_found()) reason = child::cuda_text(context_.me.worker, reason);
    if (reason.empty()) {
      trim(slot, report.rows);
    } else {
      fail_all(lease, context_.dataset, "collating the batch: " + reason, report);
    }
  }
  context_.flight.rest();
  shorten_texts(report.failures);
  report.busy_ns = static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  report.reading_ns = static_cast<std::uint64_t>((time_spent_reading() - read_before).count());
  sample_times::of_batch times = times_.take();
  report.slow_ns = static_cast<std::uint64_t>(times.slow.count());
  for (timed_sample& s : times.slowest)
    report.slowest.push_back({s.index, shortened(printable(s.name), text_bytes_max), static_cast<std::uint64_t>(s.took.count())});
  return report;
}

std::string lease_runner::load_row(const protocol::wire_sample& sample, std::uint64_t epoch,
                                   std::span<std::byte> slot, std::uint32_t row) {
  tensors_.clear();
  for (std::size_t t = 0; t < context_.layout.described; ++t) {
    const tensor_place& place = context_.layout.tensors[t];
    tensors_.push_back(slot.subspan(place.offset + place.row_bytes * row, place.row_bytes));
  }
  for (std::size_t tries = 0;; ++tries) {
    random_source random(context_.seed, epoch, sample.index);
    lengths_.clear();
    for (std::size_t t = 0; t < context_.layout.described; ++t) {
      const tensor_place& place = context_.layout.tensors[t];
      const std::uint64_t max = place.lengths ? place.spec.shape.front() : 0;
      lengths_.push_back({max, max});
    }
    try {
      const stage_range range("load");
      context_.dataset.load({sample.index, epoch, sample.attempt, random},
                            sample_slot(tensors_, lengths_, context_.specs));
      finish_lengths(slot, row, lengths_);
      return {};
    } catch (const transient_error& e) {
      if (tries < storage_pauses.size()) {
        const timed_read waiting;
        pause_(storage_pauses[tries]);
        continue;
      }
      return *e.what() != '\0' ? fmt::format("{} (tried {} times)", e.what(), tries + 1)
                               : "storage did not respond";
    } catch (...) {
      return thrown_text();
    }
  }
}

/// Records the lengths of the row's tensors and clears their unused parts.
void lease_runner::finish_lengths(std::span<std::byte> slot, std::uint32_t row,
                                  std::span<const sample_length> lengths) const {
  for (std::size_t t = 0; t < lengths.size(); ++t) {
    const tensor_place& place = context_.layout.tensors[t];
    if (!place.lengths) continue;
    const auto entries = static_cast<std::int64_t>(lengths[t].entries);
    const tensor_place& notes = context_.layout.tensors[*place.lengths];
    std::memcpy(slot.subspan(notes.offset + notes.row_bytes * row).data(), &entries, sizeof entries);
    const std::uint64_t used = lengths[t].entries * place.entry_bytes();
    std::ranges::fill(slot.subspan(place.offset + place.row_bytes * row + used, place.row_bytes - used),
                      std::byte{0});
  }
}

std::string lease_runner::collate(std::uint64_t epoch, std::span<std::byte> slot,
                                  std::span<const std::uint64_t> samples) {
  std::vector<std::span<std::byte>> tensors;
  std::vector<std::span<const std::int64_t>> lengths;
  for (std::size_t t = 0; t < context_.layout.described; ++t) {
    const tensor_place& place = context_.layout.tensors[t];
    tensors.push_back(slot.subspan(place.offset, place.row_bytes * samples.size()));
    lengths.emplace_back();
    if (!place.lengths) continue;
    const std::uint64_t at = context_.layout.tensors[*place.lengths].offset;
    lengths.back() = {reinterpret_cast<const std::int64_t*>(slot.subspan(at).data()), samples.size()};
  }
  const stage_range range("collate");
  random_source random(context_.seed ^ collate_stream, epoch, samples.front());
  try {
    context_.dataset.collate(batch_slot(tensors, lengths, samples, context_.specs), random);
    return {};
  } catch (...) {
    return thrown_text();
  }
}

/// Trims the tensors whose length depends on the batch: shortens every row to the length of the longest, and
/// moves the rows together.
void lease_runner::trim(std::span<std::byte> slot, std::uint32_t rows) const {
  for (const tensor_place& place : context_.layout.tensors) {
    if (place.spec.length != length_rule::batch_maximum) continue;
    const std::uint64_t notes = context_.layout.tensors[*place.lengths].offset;
    std::int64_t longest = 0;
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::int64_t entries = 0;
      std::memcpy(&entries, slot.subspan(notes + row * sizeof entries).data(), sizeof entries);
      longest = std::max(longest, entries);
    }
    const std::uint64_t trimmed = static_cast<std::uint64_t>(longest) * place.entry_bytes();
    if (trimmed == place.row_bytes) continue;
    std::byte* const first = slot.subspan(place.offset).data();
    // Row 0 is already in place. Each row moves towards the beginning, so no row is overwritten before it has
    // moved.
    for (std::uint64_t row = 1; row < rows; ++row)
      std::memmove(first + row * trimmed, first + row * place.row_bytes, trimmed);
  }
}

}  // namespace penstock::loader
