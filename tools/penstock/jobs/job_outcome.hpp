// The outcome of a job of `penstock map`, and its line in the output. Pure.
#pragma once

#include <penstock/pool.hpp>

#include <array>
#include <cstdint>
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
  std::optional<double> seconds{};          ///< that a command ran, in its last attempt
  std::optional<std::int32_t> exit_code{};  ///< of a command
  bool again = false;                       ///< --retries may repeat it
  bool ends_run = false;                    ///< every job would end like this: there is no such function
};

/// A JSON value unchanged (numbers keep their digits), on one line. Anything else becomes a JSON string, with
/// invalid UTF-8 replaced by U+FFFD.
[[nodiscard]] std::string json_of_bytes(std::string_view bytes);
/// A JSON string, with invalid UTF-8 replaced by U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);

[[nodiscard]] job_outcome outcome_of(const job_failure& why);

/// {"index":..,"status":..,"attempts":..,"result":..,"error":..} and a line feed.
[[nodiscard]] std::string output_line(std::uint64_t index, const job_outcome& outcome);

}  // namespace penstock::cli
