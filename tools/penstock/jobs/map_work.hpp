// What `penstock map` does with each line: calls a function of a worker program, or runs a command. Turns
// lines into arguments and results into outcomes, and submits jobs to a pool.
#pragma once

#include "tools/penstock/jobs/command_outcome.hpp"
#include "tools/penstock/jobs/command_template.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"
#include "tools/penstock/jobs/map_run.hpp"
#include "tools/penstock/jobs/result_files.hpp"

#include <penstock/pool.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace penstock::cli {

/// Turns lines into arguments, and results into outcomes.
class work {
 public:
  virtual ~work() = default;
  [[nodiscard]] virtual std::string function() const = 0;
  /// The device program that receives the function's results; empty: none.
  [[nodiscard]] virtual std::string program() const { return {}; }
  [[nodiscard]] virtual line_rule lines() const = 0;
  /// Identifies the work in a journal.
  [[nodiscard]] virtual std::string as_json() const = 0;
  /// What would run for the line: the words of the command, or the function and its argument.
  [[nodiscard]] virtual std::vector<std::string> words_for(const std::string& line) const = 0;
  [[nodiscard]] virtual Argument argument_of(const map_line& line) const = 0;
  /// Writes those files of --results that workers do not write.
  [[nodiscard]] virtual job_outcome outcome_of_result(std::uint64_t index,
                                                      std::span<const std::byte> bytes) const = 0;
};

/// `program`: as work::program. `files`: for --results, or null; must outlive the work.
[[nodiscard]] std::unique_ptr<work> call_function(std::string name, std::string program,
                                                  const result_files* files);

struct command_settings {
  std::uint64_t output_bytes_max = 0;      ///< kept of stdout, and as many of stderr
  std::uint64_t memory_bytes_max = 0;      ///< 0: no limit
  std::vector<std::string> environment{};  ///< in the form of protocol::command_job
  const result_files* files = nullptr;     ///< for --results; outlives the work
};
/// `as_given` identifies the command in a journal.
[[nodiscard]] std::unique_ptr<work> run_command_line(command_template command, std::string as_given,
                                                     exit_rule exits, command_settings settings);

/// Submits jobs to a pool. Pool and work must outlive this object and the jobs.
class job_starter {
 public:
  job_starter(Pool& pool, const work& what) : pool_(pool), what_(what) {}

  /// Implements map_run::starter.
  result<void> start(const map_line& line, const map_run::settle& settled);
  /// Cancels all jobs that have not begun, including those started later. Any thread.
  void cancel_waiting();

 private:
  void add(const Job& job);

  Pool& pool_;
  const work& what_;
  std::mutex mutex_;  // guards the members below
  std::map<std::uint64_t, Job> unfinished_;
  bool cancelling_ = false;
};

}  // namespace penstock::cli
