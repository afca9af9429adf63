// Shows the progress while an index of tar shards is built. Used by the verbs that open a dataset.
#pragma once

#include <penstock/config.hpp>

namespace penstock::cli {

/// Who prints the notices about a dataset: this function, on stderr, or its caller, which gets the prepared dataset.
enum class notices_told { here, by_caller };

/// Prepares a dataset of tar shards, with a progress bar on stderr while their index is built, for the caller's next
/// prepare_stream or prepare_dataset. Does nothing for other datasets; leaves errors for that step to report.
void index_with_bar(const config& settings, notices_told notices = notices_told::here);

}  // namespace penstock::cli
