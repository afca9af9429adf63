// The layout of jobs in a slot of the arena. Session and worker write into the same table, so that after any
// death it shows which jobs have finished, without a message:
//
//   | header | rows x row | argument of row 0 | ... | result, guard word | result, guard word | ....... |
//
//   waiting ---- worker: before the function runs ----> begun ---- worker ----> finished | failed | too_large
//      |
//      +-------- session: the job is not to run here -> revoked
//
// A row leaves `waiting` by compare-and-exchange: a revoked job never starts, and a started one cannot be
// revoked. The session writes the table before the message that names it; the worker writes a result before
// the row's state. Results are stored in the order in which jobs run, each followed by a guard word: a
// function that writes past its result hits that word first, and then space that no result uses yet. Pure
// layout: no descriptor, no message, no clock. Used by actors/jobs (the session's side) and
// actors/job_worker.
//
// The session trusts nothing in the slot: each reading is a copy, checked against the slot's size. The worker can
// overwrite the whole slot, even what the session wrote (which job, how many rows), so the session keeps its own record
// of that.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::arena {

enum class row_state : std::uint32_t { waiting, begun, finished, failed, too_large, revoked };

/// Arguments and results start at multiples of this, which suits DMA, vector loads and cache lines.
inline constexpr std::uint64_t job_alignment = 64;

/// A row as written by the session.
struct job_order {
  std::uint64_t job = 0;
  std::uint32_t function = 0;  ///< index in the worker program's list
  std::uint32_t attempt = 1;
  nanoseconds limit{0};                   ///< 0: none
  std::span<const std::byte> argument{};  ///< copied into the slot
  bool argument_elsewhere = false;        ///< the argument is in a separate memfd; `argument` is empty
};

/// A row as read by either side. Offsets count from the beginning of the slot and lie within it.
struct job_reading {
  std::uint64_t job = 0;
  std::uint32_t function = 0;
  std::uint32_t attempt = 1;
  nanoseconds limit{0};
  row_state state = row_state::waiting;
  bool argument_elsewhere = false;
  bool result_elsewhere = false;  ///< the result is in a memfd that the worker has sent
  std::uint64_t argument_offset = 0;
  std::uint64_t argument_bytes = 0;
  std::uint64_t result_offset = 0;
  std::uint64_t result_bytes = 0;  ///< if the row is failed or too_large: the size of its error (job_error.hpp)
  steady_time begun{};             ///< meaningless while waiting
  nanoseconds busy{0};             ///< run time; only for finished rows
};

/// Size of the guard word, which follows each result directly, without alignment.
inline constexpr std::uint64_t job_guard_bytes = 8;

/// Bytes of a table with `rows` rows, rounded up to job_alignment.
[[nodiscard]] std::uint64_t job_table_bytes(std::uint32_t rows) noexcept;

/// Bytes that a lease with these arguments takes before the first result. An argument in a memfd counts 0.
[[nodiscard]] std::uint64_t job_bytes_before_results(std::span<const std::uint64_t> argument_bytes) noexcept;

/// The offset of the argument that follows one of `bytes` bytes. The first argument follows the table
/// (job_table_bytes).
[[nodiscard]] std::uint64_t job_next_argument(std::uint64_t argument_offset, std::uint64_t bytes) noexcept;

/// The offset of the next result: after the previous one and its guard word.
[[nodiscard]] std::uint64_t job_next_result(std::uint64_t result_offset, std::uint64_t result_bytes) noexcept;

/// A view of one slot; cheap to make. The memory must outlive it and be aligned to job_alignment.
class job_slot {
 public:
  explicit job_slot(std::span<std::byte> memory) noexcept : memory_(memory) {}

  // ---- the session's side -------------------------------------------------------------------------------

  /// Writes a whole table with all rows waiting, and copies the arguments. Requires that they fit
  /// (job_bytes_before_results).
  void write(std::uint32_t generation, std::span<const job_order> orders) const;
  /// Writes the table without copying the arguments. The caller copies each argument
  /// to its place (job_next_argument) before it sends the lease to the worker.
  void write_table(std::uint32_t generation, std::span<const job_order> orders) const;
  /// Revokes a row. Returns false if it has started or finished. `row` must have been written by write().
  [[nodiscard]] bool revoke(std::uint32_t row) const noexcept;

  // ---- both ---------------------------------------------------------------------------------------------

  /// The number of rows in the table. Refuses (errc::protocol) a different generation, or more rows than fit.
  [[nodiscard]] result<std::uint32_t> rows(std::uint32_t generation) const;
  /// A copy of a row; `row` < rows(). Refuses (errc::protocol) an invalid state, and offsets and sizes outside the
  /// slot. The place of the result is meaningful only once the row is finished.
  [[nodiscard]] result<job_reading> read(std::uint32_t row) const;
  /// The bytes at a place returned by read().
  [[nodiscard]] std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t count) const noexcept {
    return memory_.subspan(offset, count);
  }

  // ---- the worker's side --------------------------------------------------------------------------------

  /// Marks a row as started. Returns false if it was revoked.
  [[nodiscard]] bool begin(std::uint32_t row, steady_time now) const noexcept;
  /// The offset of the first result: after the table and the arguments
  /// of `rows` rows. Refuses (errc::protocol) what read() refuses.
  [[nodiscard]] result<std::uint64_t> first_result(std::uint32_t rows) const;
  /// The largest result at this offset: the rest of the slot minus the guard word. 0 if there is no room.
  [[nodiscard]] std::uint64_t room_from(std::uint64_t result_offset) const noexcept;
  /// Writes the guard word after `room` bytes (at most room_from()).
  void guard(std::uint64_t result_offset, std::uint64_t room) const noexcept;
  /// How many bytes past its room a function has written: 0 if the guard word is intact, else up to its last
  /// overwritten byte. Writes beyond the guard word are not detected.
  [[nodiscard]] std::uint64_t overrun(std::uint64_t result_offset, std::uint64_t room) const noexcept;
  /// Finishes a row: sets its state, its run time, and the place and size of its result. Nothing writes to the row
  /// afterwards.
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
