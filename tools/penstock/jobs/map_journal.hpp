// The journal of `penstock map --journal`: the finished jobs of an interrupted run. The next run continues
// from there and still writes the complete output. An append-only text file:
//
//   {"schema":"penstock.map-journal/1","work":{"function":"thumbnail"}}
//   {"line":"00ff00ff00ff00ff","index":4,"status":"ok","attempts":1,"result":..,"error":null}
//
// Each line is the job's output line, preceded by the hash of its input line. Lines are written as jobs
// finish; if an index occurs twice, the later line counts. When the file is opened, a last line torn by a
// crash is dropped, and its job runs again. Memory does not grow with the journal: a temporary file holds the
// offsets of the lines.
#pragma once

#include "runtime/base/line_file.hpp"
#include "runtime/base/result.hpp"

#include <penstock/pool.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::cli {

/// A job recorded in the journal.
struct journal_entry {
  std::uint64_t index = 0;
  std::uint64_t hash = 0;  ///< hash of the input line
  job_status status = job_status::ok;
  std::string output{};  ///< the job's output line, with its line feed
  std::optional<std::int64_t> exit_code{};  ///< for a command: "exit" of its result
};

/// A line of the journal; `output` comes from output_line().
[[nodiscard]] std::string journal_line(std::uint64_t hash, std::string_view output);
/// How two descriptions of work (work::as_json) differ: "written for --command 'gzip {}', but this run has --command 'xz {}'". Pure.
[[nodiscard]] std::string difference_of_work(const std::string& of_journal, const std::string& of_run);
/// `line` has no line feed. Empty if journal_line() did not write it. Pure.
[[nodiscard]] std::optional<journal_entry> parse_journal_line(std::string_view line);

class map_journal {
 public:
  /// `work` is JSON that describes what is done to each line. Refuses a journal of different work
  /// (errc::state_mismatch), and with errc::io a file that is not a journal or a journal in use by another
  /// run. Creates a missing file.
  static result<std::unique_ptr<map_journal>> open(const std::string& path, const std::string& work);

  /// Empty if the job must run. Thread-safe, like hash_of(), append() and sync().
  result<std::optional<journal_entry>> find(std::uint64_t index) const;
  /// The hash of the input line of a recorded job, without reading its result.
  result<std::optional<std::uint64_t>> hash_of(std::uint64_t index) const;
  /// On failure the file stays unchanged.
  result<void> append(std::uint64_t hash, std::string_view output);
  /// Flushes to disk.
  result<void> sync();

  // The findings of open().

  [[nodiscard]] std::uint64_t jobs() const noexcept { return jobs_; }  ///< without repetitions
  /// The highest index + 1.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  /// Garbled lines in the middle of the file: their jobs run again.
  [[nodiscard]] std::uint64_t unreadable() const noexcept { return unreadable_; }
  /// Bytes of a torn last line, which was dropped.
  [[nodiscard]] std::uint64_t torn_bytes() const noexcept { return torn_; }

 private:
  map_journal(std::string path, unique_fd file, std::FILE* places);
  result<void> read_all(const std::string& header);
  result<void> begin(const std::string& header);
  result<void> note_place(std::uint64_t index, std::uint64_t offset);
  result<std::optional<std::uint64_t>> place_of(std::uint64_t index) const;
  [[nodiscard]] tl::unexpected<failure> failed(std::string_view doing, int os_code) const;

  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  const std::string path_;
  line_file file_;
  const std::unique_ptr<std::FILE, closer> places_;  // at byte 8 N: the offset of job N's line; 0: none
  std::uint64_t jobs_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t unreadable_ = 0;
  std::uint64_t torn_ = 0;

  std::mutex mutex_;  // guards appending and the member below
  bool unsynced_ = false;
};

}  // namespace penstock::cli
