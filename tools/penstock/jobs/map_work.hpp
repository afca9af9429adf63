// What `penstock map` does to each line: calls a function of a worker program, or runs a command. Turns lines into
// arguments and results into outcomes, and gives jobs to a pool.
#pragma once

#include "tools/penstock/jobs/command_outcome.hpp"
#include "tools/penstock/jobs/command_template.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"
#include "tools/penstock/jobs/map_run.hpp"

#include <penstock/pool.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace penstock::cli {

/// Turns lines into arguments, and results into outcomes.
class work {
 public:
  virtual ~work() = default;
  [[nodiscard]] virtual std::string function() const = 0;
  /// The device program that gets the function's results; empty: none.
  [[nodiscard]] virtual std::string program() const { return {}; }
  [[nodiscard]] virtual line_rule lines() const = 0;
  /// Identifies the work of a journal.
  [[nodiscard]] virtual std::string as_json() const = 0;
  [[nodiscard]] virtual Argument argument_of(const std::shared_ptr<const std::string>& line) const = 0;
  [[nodiscard]] virtual job_outcome outcome_of_result(std::span<const std::byte> bytes) const = 0;
};

/// `program`: as work::program.
[[nodiscard]] std::unique_ptr<work> call_function(std::string name, std::string program);

struct command_bounds {
  std::uint64_t output_bytes_max = 0;  ///< kept of stdout, and of stderr
  std::uint64_t memory_bytes_max = 0;  ///< 0: no limit
};
/// `as_given` identifies it in a journal.
[[nodiscard]] std::unique_ptr<work> run_command_line(command_template command, std::string as_given,
                                                     exit_rule exits, command_bounds bounds);

/// A map_run::starter without its first two arguments, which outlive the jobs.
result<void> begin_job(Pool& pool, const work& what, const std::shared_ptr<const std::string>& line,
                       const map_run::settle& settled);

}  // namespace penstock::cli
