// The worker program of a custom dataset ([loader] command). Only this program can read the dataset, so session and host each
// start one worker from their own copy. They compare the copies, and how each describes the dataset (rule H2).
//
// The describe_ functions block, for up to [loader.hang] start_deadline per answer.
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
/// Refuses (errc::worker_program) if the file has changed since it was compared with the session's. The message has the facts of
/// both versions.
result<void> check_unchanged(const program_file& before);

struct described_program {
  dataset_description dataset;   ///< as the program describes it
  program_file file;             ///< its digest is one of the facts
  std::vector<wire_fact> facts;  ///< about the program, for difference_of_facts
};

/// In a session. Refuses (errc::worker_program) a program that cannot be started or read, and whatever the worker refuses. When
/// `given_up` becomes true, it stops waiting (errc::stopped).
result<described_program> describe_custom(const config& settings, const std::atomic<bool>* given_up = nullptr);

/// On a host. `command` comes from the host's operator only, never from the session. Refuses (errc::config) if it is empty.
/// `own`: from `--data`.
result<described_program> describe_custom_on_host(const config& here, const std::vector<std::string>& command, const string_map& own,
                                                  const std::atomic<bool>* given_up = nullptr);

}  // namespace penstock::hosts
