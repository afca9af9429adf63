// Loads samples of a custom dataset with its own worker program. Used by inspect.
#pragma once

#include "tools/penstock/dataset/inspection.hpp"

namespace penstock::inspected {

/// Adds the dataset's facts, and the suspicious findings in at most samples_looked_at samples, evenly spread:
/// values, errors, and deaths of workers. Runs a session on the host device, without a control socket or a
/// quarantine file. Fails if that session fails.
result<void> add_custom_samples(inspection& to, const config& settings, const progress& told);

}  // namespace penstock::inspected
