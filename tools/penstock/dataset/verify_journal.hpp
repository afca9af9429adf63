// `penstock replay --verify`: loads the batches of a journal again and compares them.
#pragma once

#include "tools/penstock/dataset/planned_stream.hpp"

#include <string>

namespace penstock::cli {

/// Prints what differs, and returns the exit code: exit_failed if a batch has changed, is missing, or is there twice
/// with different contents. On a terminal it shows the progress on stderr.
int verify_journal(const std::string& path, const config& settings, const planned_stream& stream, bool as_json);

}  // namespace penstock::cli
