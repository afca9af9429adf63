// Samples of a custom dataset, loaded by its own worker program. Used by inspect.
#pragma once

#include "tools/penstock/dataset/inspection.hpp"

namespace penstock::inspect {

/// Adds the dataset's facts, and what is suspicious about at most samples_looked_at samples, evenly spread: values, errors, and
/// deaths of workers. Runs a session on the host device, without a control socket or a quarantine file. Refuses what ends
/// that session.
result<void> add_custom_samples(inspection& to, const config& settings, const progress& told);

}  // namespace penstock::inspect
