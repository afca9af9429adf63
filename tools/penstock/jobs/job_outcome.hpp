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
  std::string error = "null";               ///< JSON on one line: {"text": ..} and whatever else is known
  std::string text{};                       ///< of a failure: one sentence
  std::optional<double> seconds{};          ///< that its last attempt ran
  std::optional<std::int32_t> exit_code{};  ///< of a command
  /// When its last attempt began; empty: none did.
  std::optional<std::chrono::system_clock::time_point> started{};
  std::string signal{};              ///< that ended its last attempt: "SIGSEGV"
  std::optional<failure> trouble{};  ///< its files could not be written: no other job's could
  /// What counts against [jobs] memory for `result`, until the outcome is written.
  std::shared_ptr<const void> held{};
  bool again = false;     ///< --retries may repeat it
  bool ends_run = false;  ///< every job would end like this: there is no such function
};

/// A JSON value unchanged (numbers keep their digits), on one line. Anything else becomes a JSON string, with
/// invalid UTF-8 replaced by U+FFFD (see is_utf8).
[[nodiscard]] std::string json_of_bytes(std::string_view bytes);
/// A JSON string, with invalid UTF-8 replaced by U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);
/// Whether json_string() keeps every byte.
[[nodiscard]] bool is_utf8(std::string_view text);

[[nodiscard]] job_outcome outcome_of(const job_failure& why);

/// "SIGSEGV" of a cause such as "SIGSEGV (core dumped)"; empty if it names no signal.
[[nodiscard]] std::string signal_in(std::string_view cause);

/// {"index":..,"status":..,"attempts":..,"result":..,"error":..,"input":..} and a line feed. `input` is JSON.
[[nodiscard]] std::string output_line(std::uint64_t index, const job_outcome& outcome,
                                      std::string_view input);

}  // namespace penstock::cli
