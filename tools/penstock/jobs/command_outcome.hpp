// Converts the outcome of a command to the outcome of a job: {"exit":0,"stdout":"..","stderr":".."}. Pure.
#pragma once

#include "actors/protocol/command_job.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"

namespace penstock::cli {

/// The meaning of an exit code other than 0.
enum class exit_rule : std::uint8_t {
  any_is_ok,  ///< the job is ok; its result contains the exit code
  must_be_0,  ///< the job is an `exception` of type "exit", but still has its result
};

/// If some output was dropped, "stdout_bytes" or "stderr_bytes" is the total. Output that is not UTF-8 also
/// appears unchanged in "stdout_base64" or "stderr_base64".
[[nodiscard]] job_outcome outcome_of(const protocol::command_outcome& done, exit_rule rule);

}  // namespace penstock::cli
