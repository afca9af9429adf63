// The outcome of a job of `penstock map`, and its line in the output. Pure.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/pool.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::cli {

/// Every status, in the order of the enumerators.
inline constexpr std::array all_job_statuses{
    job_status::ok,        job_status::exception,   job_status::poisoned,  job_status::timed_out,
    job_status::cancelled, job_status::worker_lost, job_status::too_large, job_status::device};
[[nodiscard]] std::optional<job_status> status_named(std::string_view name);

struct job_outcome {
  job_status status = job_status::ok;
  std::uint32_t attempts = 0;
  std::string result = "null";              ///< JSON on one line
  std::string error = "null";               ///< JSON on one line: {"text": ..} and any other known facts
  std::string text{};                       ///< one sentence about a failure
  std::optional<double> seconds{};          ///< duration of the last attempt
  std::optional<std::int32_t> exit_code{};  ///< exit code of a command
  /// When the last attempt began; empty: none did.
  std::optional<std::chrono::system_clock::time_point> started{};
  std::string signal{};              ///< the signal that ended the last attempt: "SIGSEGV"
  std::optional<failure> trouble{};  ///< the job's files could not be written, nor could those of other jobs
  /// Keeps `result` counted against [jobs] memory until the outcome is written.
  std::shared_ptr<const void> held{};
  bool again = false;     ///< --retries may repeat it
  bool from_pool = false;  ///< a pool ran the job or an earlier try, so judge() must report how it ended
  bool ends_run = false;  ///< every job would fail like this: the function does not exist
};

/// Keeps a JSON value unchanged (numbers keep their digits), but on one line. Converts anything else to a
/// JSON string, with invalid UTF-8 replaced by U+FFFD (see is_utf8).
[[nodiscard]] std::string json_of_bytes(std::string_view bytes);
/// A JSON string, with invalid UTF-8 replaced by U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);
/// Whether json_string() keeps every byte.
[[nodiscard]] bool is_utf8(std::string_view text);

[[nodiscard]] job_outcome outcome_of(const job_failure& why);

/// "SIGSEGV" for a cause such as "SIGSEGV (core dumped)"; empty if the cause names no signal.
[[nodiscard]] std::string signal_in(std::string_view cause);

/// Whether a job ended without a result, for another reason than cancellation.
[[nodiscard]] constexpr bool has_failed(job_status status) noexcept {
  return status != job_status::ok && status != job_status::cancelled;
}
[[nodiscard]] inline bool exited_with_another_code_than_0(const job_outcome& outcome) noexcept {
  return outcome.exit_code.value_or(0) != 0;
}
/// How status, metrics and records count this job. Not for cancelled jobs.
[[nodiscard]] job_verdict verdict_on(const job_outcome& outcome) noexcept;

/// {"index":..,"status":..,"attempts":..,"result":..,"error":..,"input":..} and a line feed. `input` is JSON.
[[nodiscard]] std::string output_line(std::uint64_t index, const job_outcome& outcome,
                                      std::string_view input);

}  // namespace penstock::cli
