// Rules about [[datasets]], the datasets of a mixture. Used by rules.cpp.
#pragma once

#include "runtime/config/rules.hpp"

#include <functional>
#include <vector>

namespace penstock::config_file {

/// `check_dataset`: the rules about one [dataset], which also hold for each dataset of a mixture.
void check_mixture(
    const penstock::config& values,
    const std::function<void(const dataset_config&, std::vector<contradiction>&)>& check_dataset,
    std::vector<contradiction>& found);

}  // namespace penstock::config_file
