#include "runtime/arena/job_slot.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/units.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>

namespace penstock::arena {

// Every field is an atomic, although most are written by one side before the other reads: a hostile worker
// may write at any time, and the value that is checked must be the value that is used.

struct job_slot::header {
  std::atomic<std::uint32_t> generation{0};
  std::atomic<std::uint32_t> rows{0};
};

struct job_slot::row_record {
  std::atomic<row_state> state{row_state::waiting};
  std::atomic<std::uint32_t> function{0};
  std::atomic<std::uint64_t> job{0};
  std::atomic<std::uint32_t> attempt{1};
  std::atomic<std::uint8_t> argument_elsewhere{0};
  std::atomic<std::uint8_t> result_elsewhere{0};
  std::atomic<std::int64_t> limit_ns{0};
  std::atomic<std::uint64_t> argument_offset{0};
  std::atomic<std::uint64_t> argument_bytes{0};
  std::atomic<std::uint64_t> result_offset{0};
  std::atomic<std::uint64_t> result_bytes{0};
  std::atomic<std::int64_t> begun_ns{0};  // steady clock, shared by all processes
  std::atomic<std::int64_t> busy_ns{0};
};

static_assert(std::atomic<row_state>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr std::uint64_t header_bytes = 64;  // 2 x 4 bytes, padded to job_alignment
constexpr std::uint64_t row_bytes = 80;     // 8 numbers of 8 bytes; 16 for state, function, attempt and flags

/// A pattern that programs are unlikely to write by accident: not all zeros or ones, not text, not a small
/// number.
constexpr std::array<unsigned char, job_guard_bytes> guard_word{0xd7, 0x4b, 0xa9, 0x1e,
                                                                0xf3, 0x86, 0x5c, 0xb2};

constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + job_alignment - 1) & ~(job_alignment - 1);
}

/// Whether offset .. offset + count is within the slot; computed without a sum that could overflow.
constexpr bool is_within(std::uint64_t size, std::uint64_t offset, std::uint64_t count) noexcept {
  return offset <= size && count <= size - offset;
}

}  // namespace

std::uint64_t job_table_bytes(std::uint32_t rows) noexcept {
  return aligned(header_bytes + rows * row_bytes);
}

std::uint64_t job_bytes_before_results(std::span<const std::uint64_t> argument_bytes) noexcept {
  std::uint64_t bytes = job_table_bytes(static_cast<std::uint32_t>(argument_bytes.size()));
  for (const std::uint64_t argument : argument_bytes) bytes += aligned(argument);
  return bytes;
}

std::uint64_t job_next_argument(std::uint64_t argument_offset, std::uint64_t bytes) noexcept {
  return aligned(argument_offset + bytes);
}

std::uint64_t job_next_result(std::uint64_t result_offset, std::uint64_t result_bytes) noexcept {
  return aligned(result_offset + result_bytes + job_guard_bytes);
}

job_slot::header& job_slot::head() const noexcept {
  return *std::launder(reinterpret_cast<header*>(memory_.data()));
}

job_slot::row_record& job_slot::at(std::uint32_t row) const noexcept {
  static_assert(sizeof(header) <= header_bytes && sizeof(row_record) == row_bytes);
  return *std::launder(reinterpret_cast<row_record*>(memory_.data() + header_bytes + row * row_bytes));
}

// ---- the session's side -----------------------------------------------------------------------------------

void job_slot::write(std::uint32_t generation, std::span<const job_order> orders) const {
  write_table(generation, orders);
  std::uint64_t place = job_table_bytes(static_cast<std::uint32_t>(orders.size()));
  for (const job_order& order : orders) {
    if (!order.argument.empty())
      std::memcpy(memory_.data() + place, order.argument.data(), order.argument.size());
    place = job_next_argument(place, order.argument.size());
  }
}

void job_slot::write_table(std::uint32_t generation, std::span<const job_order> orders) const {
  std::uint64_t place = job_table_bytes(static_cast<std::uint32_t>(orders.size()));
  PENSTOCK_CHECK(place <= memory_.size(), "a table of {} rows does not fit in a slot of {} bytes",
                 orders.size(), memory_.size());
  for (std::uint32_t i = 0; i < orders.size(); ++i) {
    const job_order& order = orders[i];
    PENSTOCK_CHECK(is_within(memory_.size(), place, order.argument.size()),
                   "argument {} of {}: {} bytes at offset {} do not fit in a slot of {} bytes", i,
                   orders.size(), order.argument.size(), place, memory_.size());
    row_record& row = *new (&at(i)) row_record;
    row.job.store(order.job, relaxed);
    row.function.store(order.function, relaxed);
    row.attempt.store(order.attempt, relaxed);
    row.limit_ns.store(order.limit.count(), relaxed);
    row.argument_elsewhere.store(order.argument_elsewhere ? 1 : 0, relaxed);
    row.argument_offset.store(place, relaxed);
    row.argument_bytes.store(order.argument.size(), relaxed);
    place = job_next_argument(place, order.argument.size());
    row.state.store(row_state::waiting, std::memory_order_release);
  }
  header& top = *new (&head()) header;
  top.rows.store(static_cast<std::uint32_t>(orders.size()), relaxed);
  top.generation.store(generation, std::memory_order_release);
}

bool job_slot::revoke(std::uint32_t row) const noexcept {
  row_state waiting = row_state::waiting;
  return at(row).state.compare_exchange_strong(waiting, row_state::revoked, std::memory_order_acq_rel);
}

// ---- both -------------------------------------------------------------------------------------------------

result<std::uint32_t> job_slot::rows(std::uint32_t generation) const {
  if (memory_.size() < header_bytes)
    return refuse(errc::protocol, "a slot of {} bytes is too small for a table", memory_.size());
  const std::uint32_t found = head().generation.load(std::memory_order_acquire);
  const std::uint32_t count = head().rows.load(relaxed);
  if (found != generation)
    return refuse(errc::protocol, "the slot holds the table of generation {}, not {}", found, generation);
  if (count > (memory_.size() - header_bytes) / row_bytes)
    return refuse(errc::protocol, "a table of {} rows does not fit in a slot of {} bytes", count,
                  memory_.size());
  return count;
}

result<job_reading> job_slot::read(std::uint32_t row) const {
  const row_record& from = at(row);
  job_reading now;
  now.state = from.state.load(std::memory_order_acquire);
  now.job = from.job.load(relaxed);
  now.function = from.function.load(relaxed);
  now.attempt = from.attempt.load(relaxed);
  now.limit = nanoseconds(from.limit_ns.load(relaxed));
  now.argument_elsewhere = from.argument_elsewhere.load(relaxed) != 0;
  now.result_elsewhere = from.result_elsewhere.load(relaxed) != 0;
  now.argument_offset = from.argument_offset.load(relaxed);
  now.argument_bytes = from.argument_bytes.load(relaxed);
  now.result_offset = from.result_offset.load(relaxed);
  now.result_bytes = from.result_bytes.load(relaxed);
  now.begun = steady_time(nanoseconds(from.begun_ns.load(relaxed)));
  now.busy = nanoseconds(from.busy_ns.load(relaxed));
  if (now.state > row_state::revoked)
    return refuse(errc::protocol, "row {} is in state {}, which does not exist", row,
                  static_cast<std::uint32_t>(now.state));
  if (!is_within(memory_.size(), now.argument_offset, now.argument_bytes))
    return refuse(errc::protocol,
                  "the argument of row {}, {} bytes at offset {}, is outside the slot ({} bytes)", row,
                  now.argument_bytes, now.argument_offset, memory_.size());
  // The offset of a result in a memfd has no meaning.
  if (now.result_elsewhere) now.result_offset = 0;
  if (!now.result_elsewhere && !is_within(memory_.size(), now.result_offset, now.result_bytes))
    return refuse(errc::protocol,
                  "the result of row {}, {} bytes at offset {}, is outside the slot ({} bytes)", row,
                  now.result_bytes, now.result_offset, memory_.size());
  return now;
}

// ---- the worker's side ------------------------------------------------------------------------------------

bool job_slot::begin(std::uint32_t row, steady_time now) const noexcept {
  row_record& record = at(row);
  record.begun_ns.store(nanoseconds(now.time_since_epoch()).count(), relaxed);
  row_state waiting = row_state::waiting;
  return record.state.compare_exchange_strong(waiting, row_state::begun, std::memory_order_acq_rel);
}

result<std::uint64_t> job_slot::first_result(std::uint32_t rows) const {
  std::uint64_t behind = job_table_bytes(rows);
  for (std::uint32_t i = 0; i < rows; ++i) {
    const auto row = read(i);
    if (!row) return tl::unexpected(row.error());
    behind = std::max(behind, aligned(row->argument_offset + row->argument_bytes));
  }
  return behind;
}

std::uint64_t job_slot::room_from(std::uint64_t result_offset) const noexcept {
  const std::uint64_t needed = result_offset + job_guard_bytes;
  return needed < memory_.size() ? memory_.size() - needed : 0;
}

void job_slot::guard(std::uint64_t result_offset, std::uint64_t room) const noexcept {
  std::memcpy(memory_.data() + result_offset + room, guard_word.data(), guard_word.size());
}

std::uint64_t job_slot::overrun(std::uint64_t result_offset, std::uint64_t room) const noexcept {
  std::array<unsigned char, job_guard_bytes> found{};
  std::memcpy(found.data(), memory_.data() + result_offset + room, found.size());
  std::uint64_t beyond = found.size();
  while (beyond > 0 && found[beyond - 1] == guard_word[beyond - 1]) --beyond;
  return beyond;
}

void job_slot::end(std::uint32_t row, row_state how, std::uint64_t result_offset, std::uint64_t result_bytes,
                   bool result_elsewhere, nanoseconds busy) const noexcept {
  row_record& record = at(row);
  record.result_offset.store(result_offset, relaxed);
  record.result_bytes.store(result_bytes, relaxed);
  record.result_elsewhere.store(result_elsewhere ? 1 : 0, relaxed);
  record.busy_ns.store(busy.count(), relaxed);
  record.state.store(how, std::memory_order_release);
}

}  // namespace penstock::arena
