// How jobs lie in a slot of the arena. Session and worker write into the same table, so that what is finished can be
// told from what is not after any death, without a message:
//
//   | header | rows x row | argument of row 0 | ... | result, guard word | result, guard word | ....... |
//
//   waiting ---- worker: before the function runs ----> begun ---- worker ----> finished | failed | too_large
//      |
//      +-------- session: the job is not to run here -> revoked
//
// Whoever moves a row from `waiting` wins it (compare and exchange): a job that was revoked never begins, and one that
// has begun cannot be revoked. The session writes a table before the message that names it, the worker a result before
// the row's state. Results are laid down in the order in which jobs run, each with a guard word behind it: what a
// function writes beyond its result hits that word and then the space of results that do not exist yet. Pure layout: no
// descriptor, no message, no clock. Used by actors/jobs (the session's side) and actors/job_worker.
//
// The session believes nothing that a worker wrote: each reading is a copy, checked against the slot's size. The worker
// can write the whole slot, so even what the session itself has written there (which job, how many rows) only repeats
// what it remembers.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::arena {

enum class row_state : std::uint32_t { waiting, begun, finished, failed, too_large, revoked };

/// Arguments and results begin at multiples of this: DMA, vector loads and cache lines like it.
inline constexpr std::uint64_t job_alignment = 64;

/// One row as the session writes it.
struct job_order {
  std::uint64_t job = 0;
  std::uint32_t function = 0;  ///< index in the worker program's list
  std::uint32_t attempt = 1;
  nanoseconds limit{0};                   ///< 0: none
  std::span<const std::byte> argument{};  ///< copied into the slot
  bool argument_elsewhere = false;        ///< it comes in a memfd of its own; `argument` is empty
};

/// One row as either side reads it. Offsets are from the beginning of the slot and lie inside it.
struct job_reading {
  std::uint64_t job = 0;
  std::uint32_t function = 0;
  std::uint32_t attempt = 1;
  nanoseconds limit{0};
  row_state state = row_state::waiting;
  bool argument_elsewhere = false;
  bool result_elsewhere = false;  ///< in a memfd, which the worker has sent
  std::uint64_t argument_offset = 0;
  std::uint64_t argument_bytes = 0;
  std::uint64_t result_offset = 0;
  std::uint64_t result_bytes = 0;  ///< of a row that failed or is too_large: the error (job_error.hpp)
  steady_time begun{};             ///< meaningless while waiting
  nanoseconds busy{0};             ///< of rows that are over
};

/// What is written behind each result, directly, whatever the alignment.
inline constexpr std::uint64_t job_guard_bytes = 8;

/// Bytes of the table for so many rows, rounded up to job_alignment.
[[nodiscard]] std::uint64_t job_table_bytes(std::uint32_t rows) noexcept;

/// Bytes that a lease of these arguments takes before the first result. An argument that comes elsewhere counts 0.
[[nodiscard]] std::uint64_t job_bytes_before_results(std::span<const std::uint64_t> argument_bytes) noexcept;

/// Where the next result may begin: behind one that ends there, and behind its guard word.
[[nodiscard]] std::uint64_t job_next_result(std::uint64_t result_offset, std::uint64_t result_bytes) noexcept;

/// A view of one slot; cheap to make. The memory must outlive it and be aligned to job_alignment.
class job_slot {
 public:
  explicit job_slot(std::span<std::byte> memory) noexcept : memory_(memory) {}

  // ---- the session's side -------------------------------------------------------------------------------

  /// Writes a whole table, all rows waiting, and copies the arguments. The caller has seen to it that it fits
  /// (job_bytes_before_results).
  void write(std::uint32_t generation, std::span<const job_order> orders) const;
  /// Keeps a row from being begun. False: it has begun, or is over. `row` is one of those that were written.
  [[nodiscard]] bool revoke(std::uint32_t row) const noexcept;

  // ---- both ---------------------------------------------------------------------------------------------

  /// Rows of the table of this generation; refuses (errc::protocol) another generation or more rows than fit.
  [[nodiscard]] result<std::uint32_t> rows(std::uint32_t generation) const;
  /// A copy of the row, `row` below rows(). Refuses (errc::protocol) one whose offsets and sizes lie outside of the
  /// slot, or whose state is none. Where a result lies says nothing while the row is not over.
  [[nodiscard]] result<job_reading> read(std::uint32_t row) const;
  /// Of a place that read() has given.
  [[nodiscard]] std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t count) const noexcept {
    return memory_.subspan(offset, count);
  }

  // ---- the worker's side --------------------------------------------------------------------------------

  /// False: it was revoked.
  [[nodiscard]] bool begin(std::uint32_t row, steady_time now) const noexcept;
  /// Where the first result may begin: behind the table and all arguments of `rows` rows. Refuses (errc::protocol) as
  /// read() does.
  [[nodiscard]] result<std::uint64_t> first_result(std::uint32_t rows) const;
  /// The most bytes that a result at this place may have: the rest of the slot but for the guard word. 0 if there is
  /// room for none.
  [[nodiscard]] std::uint64_t room_from(std::uint64_t result_offset) const noexcept;
  /// Writes the guard word behind a result that has so much room (at most room_from()).
  void guard(std::uint64_t result_offset, std::uint64_t room) const noexcept;
  /// How many bytes beyond its room a result was seen to be written: 0 if the guard word is as it was, else up to the
  /// last byte of it that differs. What was written behind the guard word is not seen.
  [[nodiscard]] std::uint64_t overrun(std::uint64_t result_offset, std::uint64_t room) const noexcept;
  /// The last write of a row: state, place and size of its result, time.
  void end(std::uint32_t row, row_state how, std::uint64_t result_offset, std::uint64_t result_bytes,
           bool result_elsewhere, nanoseconds busy) const noexcept;

 private:
  struct header;
  struct row_record;
  [[nodiscard]] header& head() const noexcept;
  [[nodiscard]] row_record& at(std::uint32_t row) const noexcept;

  std::span<std::byte> memory_;
};

}  // namespace penstock::arena
