// The worker program of a custom dataset ([loader] command). It alone can read the dataset, so session and host each start a worker of
// their own copy and compare what it says, and the copies (rule H2). Both functions block: up to [loader.hang] start_deadline for each answer.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <atomic>
#include <string>
#include <vector>

namespace penstock::hosts {

struct described_program {
  dataset_description dataset;  ///< as the program describes it
  string_map facts;             ///< of the program, for difference_of_facts
};

/// The session's. Refuses (errc::worker_program) a program that cannot be started or read, and what the worker refuses.
result<described_program> describe_custom(const config& settings);

/// A host's: `command` is the operator's, nothing of it comes from the session; empty: refuses (errc::config). `own`: of `--data`.
/// `given_up`: stops waiting (errc::stopped).
result<described_program> describe_custom_on_host(const config& here, const std::vector<std::string>& command, const string_map& own,
                                                  const std::atomic<bool>* given_up = nullptr);

}  // namespace penstock::hosts
