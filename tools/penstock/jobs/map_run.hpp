// One run of `penstock map`, from the first line of the input to the last of the output:
//
//   reading thread           compares the input with the journal, empties the output; then
//                            line -> in the journal? -> its output line is known --------+
//                                 -> not JSON?       -> fail, or skip it                  |
//                                 -> start(line) ... on any thread: settled -> journal -->+
//   the caller's thread      output lines, in the order of the input <--------------------+
//
// The number of lines between reading and writing, and the bytes of results that wait for an earlier job,
// bound the memory. The run reaches the pool only through `start`.
#pragma once

#include "runtime/base/result.hpp"
#include "tools/penstock/jobs/input_lines.hpp"
#include "tools/penstock/jobs/job_log.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"
#include "tools/penstock/jobs/line_rules.hpp"
#include "tools/penstock/jobs/map_journal.hpp"
#include "tools/penstock/jobs/ordered_lines.hpp"
#include "tools/penstock/jobs/output_format.hpp"
#include "tools/penstock/jobs/output_stream.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

struct map_line {
  std::uint64_t index = 0;
  std::shared_ptr<const std::string> text{};
  bool again = false;  ///< the job is being retried, and finished lines wait for it
};

struct map_rules {
  line_rule lines = line_rule::text;
  bad_line_rule bad_lines = bad_line_rule::fail;
  std::uint64_t under_way_max = 1024;           ///< lines read but not yet written
  std::uint64_t bytes_waiting_max = 1U << 30U;  ///< bytes of results that wait for an earlier result
  std::uint32_t retries = 0;
  bool retry_failed = false;  ///< repeat jobs of the journal that are not ok
  output_format format = output_format::json;
  std::uint64_t failures_max = 0;  ///< this many failed jobs end the run; 0: never
};

struct map_counts {
  std::array<std::uint64_t, all_job_statuses.size()> by_status{};
  std::uint64_t jobs = 0;          ///< finished
  std::uint64_t from_journal = 0;  ///< jobs taken from the journal of an earlier run
  std::uint64_t nonzero_exits = 0;  ///< ok jobs whose command exited with a code other than 0
  std::uint64_t skipped = 0;       ///< bad lines
  std::uint64_t input_bytes = 0;   ///< bytes of the lines of finished and skipped jobs
  [[nodiscard]] std::uint64_t of(job_status status) const {
    return by_status.at(static_cast<std::size_t>(status));
  }
};

class map_run {
 public:
  using settle = std::function<void(job_outcome)>;
  /// Starts a job; may wait for other jobs to settle. Calls `settled` once, on any thread, possibly before
  /// returning. Fails if no more jobs can be started: then `settled` is not called, and the run ends with
  /// that failure.
  using starter = std::function<result<void>(const map_line& line, settle settled)>;

  struct deps {
    line_source* input = nullptr;
    int output = -1;
    std::string output_name = "the output";
    int errors = -1;  ///< receives what commands write to stderr, if the format is not JSON; -1: dropped
    /// Called once, before the first job starts and before anything is written. Not called if the input
    /// contradicts the journal, so that an earlier output survives a refused run. May be empty.
    std::function<result<void>()> begin_output;
    map_journal* journal = nullptr;  ///< null: no journal
    job_log* log = nullptr;          ///< null: no job log
    starter start;
    std::function<void(job_verdict)> judge;  ///< tells the pool how a job that it ran has ended; may be empty
    std::function<void()> abandon;  ///< called when the output or the journal fails: cancels the running jobs
    std::function<void()> halt;     ///< called when failures_max jobs have failed; may be empty
    std::function<void(const std::string&)> tell;  ///< prints a line for the user; called on any thread
  };
  map_run(map_rules rules, deps deps);

  /// Returns when every started job has settled and is written: at the end of the input, after stop(), or
  /// with the first failure.
  result<void> run();
  /// Stops reading; does not end running jobs. Thread-safe.
  void stop();
  /// From now on, wait at most this long for the readers of output and errors; a second call may shorten
  /// that. Thread-safe.
  void hurry(std::chrono::milliseconds patience) {
    output_.give_up_after(patience);
    errors_.give_up_after(patience);
  }

  [[nodiscard]] map_counts counts() const;
  /// Whether the run reached the end of the input.
  [[nodiscard]] bool has_read_all() const;

 private:
  struct job;
  void read_lines();
  result<void> begin();
  result<void> compare_with_journal();
  [[nodiscard]] tl::unexpected<failure> differs(std::uint64_t line) const;
  result<bool> read_line();
  result<bool> take_from_journal(const job& what);
  void tell_surplus_of_journal() const;
  result<void> bad_line(const input_line& line, const std::string& why);
  bool wait_for_room();
  void expect(const job& what);
  result<void> start(const std::shared_ptr<job>& what);
  void settled(const std::shared_ptr<job>& what, job_outcome outcome);
  void try_again(const std::shared_ptr<job>& what);
  void over(const std::shared_ptr<job>& what, const job_outcome& outcome, bool is_final);
  void arrived(const job& what, job_status status, bool nonzero_exit, std::string line, bool known,
               std::shared_ptr<const void> held = {});
  void note_failure(const job& what, const job_outcome& outcome);
  void fail(failure why);
  void lose_output(failure why);
  [[nodiscard]] bool stopping() const;
  void write_lines();
  void write(std::vector<std::string> lines);

  const map_rules rules_;
  const deps deps_;
  output_stream output_;
  output_stream errors_;
  std::atomic<std::uint64_t> failures_ = 0;
  bool output_lost_ = false;      // used by the writing thread
  std::uint64_t lines_read_ = 0;  // used by the reading thread

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable room_;
  std::condition_variable news_;
  ordered_lines lines_;
  std::vector<std::shared_ptr<job>> again_;
  map_counts counts_;
  std::optional<failure> failure_;
  bool reading_ = true;
  bool read_all_ = false;
  bool stopping_ = false;
};

}  // namespace penstock::cli
