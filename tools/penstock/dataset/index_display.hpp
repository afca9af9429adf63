// Shows the progress while an index of tar shards is built. Used by the verbs that open a dataset.
#pragma once

#include <penstock/config.hpp>

namespace penstock::cli {

/// Builds the index of a tar dataset's shards if there is none that fits, with a progress bar on stderr, so
/// that the caller's next step finds it. Does nothing for other datasets; leaves errors for that step to
/// report.
void index_with_bar(const config& settings);

}  // namespace penstock::cli
