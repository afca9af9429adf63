// How jobs lie in a slot of the arena. Session and worker write into the same table, so that what is finished can be
// told from what is not after any death, without a message:
//
//   | header | rows x row | arguments of row 0 | ... | results, one after the other .......... |
//
//   waiting ---- worker: before the function runs ----> begun ---- worker ----> finished | failed | too_large
//      |
//      +-------- session: the job is not to run here -> revoked
//
// Whoever moves a row from `waiting` wins it (compare and exchange): a job that was revoked never begins, and one that
// has begun cannot be revoked. The session writes a table before the message that names it, the worker a result before
// the row's state. Results are laid down in the order in which jobs run, each with a guard word behind it. Pure layout:
// no descriptor, no message, no clock.
//
// The session believes nothing that a worker wrote: each reading is a copy, checked against the slot's size.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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
  std::uint64_t result_bytes = 0;  ///< of a failed row: the text of the error (job_error_text)
  steady_time begun{};             ///< meaningless while waiting
  nanoseconds busy{0};             ///< of rows that are over
};

/// Bytes that a lease of these arguments takes before the first result.
[[nodiscard]] std::uint64_t job_bytes_before_results(std::span<const std::uint64_t> argument_bytes) noexcept;

/// A view of one slot; cheap to make. The memory must outlive it and be aligned to job_alignment.
class job_slot {
 public:
  explicit job_slot(std::span<std::byte> memory) noexcept : memory_(memory) {}

  // ---- the session's side -------------------------------------------------------------------------------

  /// Writes a whole table, all rows waiting. The caller has seen to it that it fits (job_bytes_before_results).
  void write(std::uint32_t generation, std::span<const job_order> orders) const;
  /// Keeps a row from being begun. False: it has begun, or is over.
  [[nodiscard]] bool revoke(std::uint32_t row) const noexcept;

  // ---- both ---------------------------------------------------------------------------------------------

  /// Rows of the table of this generation; refuses (errc::protocol) another generation or more rows than fit.
  [[nodiscard]] result<std::uint32_t> rows(std::uint32_t generation) const;
  /// Refuses (errc::protocol) a row whose offsets and sizes lie outside of the slot, or whose state is none.
  [[nodiscard]] result<job_reading> read(std::uint32_t row) const;
  [[nodiscard]] std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t count) const noexcept {
    return memory_.subspan(offset, count);
  }

  // ---- the worker's side --------------------------------------------------------------------------------

  /// False: it was revoked.
  [[nodiscard]] bool begin(std::uint32_t row, steady_time now) const noexcept;
  /// Where results begin; then each one's end, rounded up, and a guard word.
  [[nodiscard]] std::uint64_t first_result(std::uint32_t rows) const;
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

/// Bytes of the table for so many rows, rounded up to job_alignment.
[[nodiscard]] std::uint64_t job_table_bytes(std::uint32_t rows) noexcept;

}  // namespace penstock::arena
