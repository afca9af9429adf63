// The worker program of a custom dataset ([loader] command). It alone can read the dataset, so session and host each start a worker of
// their own copy and compare what it says, and the copies (rule H2). To describe blocks: up to [loader.hang] start_deadline for each answer.
#pragma once

#include "actors/remote/host_messages.hpp"
#include "runtime/base/result.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::hosts {

/// Whether only a worker program can read the dataset.
[[nodiscard]] bool is_custom(const config& settings) noexcept;

/// A program's file as it was: whoever replaces or writes it changes one of these.
struct program_file {
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;

  bool operator==(const program_file&) const = default;
};
/// Refuses (errc::worker_program) a path where there is nothing.
result<program_file> look_at_program(const std::string& path);
/// Refuses (errc::worker_program), with both values, another file than that which was compared with the session's.
result<void> check_unchanged(const program_file& before);

struct described_program {
  dataset_description dataset;   ///< as the program describes it
  program_file file;             ///< whose digest is among the facts
  std::vector<wire_fact> facts;  ///< of the program, for difference_of_facts
};

/// The session's. Refuses (errc::worker_program) a program that cannot be started or read, and what the worker refuses. `given_up`: stops
/// waiting (errc::stopped).
result<described_program> describe_custom(const config& settings, const std::atomic<bool>* given_up = nullptr);

/// A host's: `command` is the operator's, nothing of it comes from the session; empty: refuses (errc::config). `own`: of `--data`.
result<described_program> describe_custom_on_host(const config& here, const std::vector<std::string>& command, const string_map& own,
                                                  const std::atomic<bool>* given_up = nullptr);

}  // namespace penstock::hosts
