// The worker program of a custom dataset ([loader] command). Only this program can read the dataset, so session and host each start one
// worker of their own copy. They compare how it describes the dataset, and the copies (rule H2).
//
// The functions that describe block: for up to [loader.hang] start_deadline for each answer.
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

/// Identifies a program's file: replacing or writing it changes one of these.
struct program_file {
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;

  bool operator==(const program_file&) const = default;
};
/// Refuses (errc::worker_program) a path without a file.
result<program_file> look_at_program(const std::string& path);
/// Refuses (errc::worker_program), with the facts of both, if the file is no longer the one that was compared with the session's.
result<void> check_unchanged(const program_file& before);

struct described_program {
  dataset_description dataset;   ///< as the program describes it
  program_file file;             ///< its digest is one of the facts
  std::vector<wire_fact> facts;  ///< about the program, for difference_of_facts
};

/// In a session. Refuses (errc::worker_program) a program that cannot be started or read, and what the worker refuses. When `given_up`
/// becomes true, it stops waiting (errc::stopped).
result<described_program> describe_custom(const config& settings, const std::atomic<bool>* given_up = nullptr);

/// On a host. `command` is the operator's; the session has no part in it. If it is empty, refuses (errc::config). `own`: from `--data`.
result<described_program> describe_custom_on_host(const config& here, const std::vector<std::string>& command, const string_map& own,
                                                  const std::atomic<bool>* given_up = nullptr);

}  // namespace penstock::hosts
