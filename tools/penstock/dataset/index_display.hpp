// Shows the progress while an index of tar shards is built. Used by the verbs that open a dataset.
#pragma once

#include <penstock/config.hpp>

namespace penstock::cli {

/// Builds the index of a tar dataset's shards if there is none that fits, with a progress bar on stderr, so that what
/// follows finds it. Does nothing for other datasets; whatever is wrong is left to what follows to say.
void index_with_bar(const config& settings);

}  // namespace penstock::cli
