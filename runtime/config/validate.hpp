// The rules of the config file for configs that a program fills in itself. Used by sessions before they
// start; load() applies the same rules.
#pragma once

#include "runtime/config/diagnostic.hpp"
#include "runtime/config/load.hpp"
#include "runtime/config/rules.hpp"

#include <penstock/config.hpp>
#include <penstock/error.hpp>

#include <tl/expected.hpp>

#include <string>
#include <vector>

namespace penstock::config_file {

/// Every violated limit and every contradiction; empty if the config is valid. `key` and where.origin name
/// the key; there is no text to point at. rank = nullopt ("auto") is valid: see adopt_launcher_rank.
std::vector<diagnostic> validate(const penstock::config& values,
                                 config_purpose purpose = config_purpose::stream);

/// For rank = nullopt: takes rank and world size from the launcher's variables
/// (runtime/base/launcher_environment.hpp says which and in which order). Returns the names
/// of the two variables. On failure returns a message and leaves `sampler` unchanged.
tl::expected<std::vector<std::string>, std::string> adopt_launcher_rank(sampler_config& sampler,
                                                                        const environment_list& environment);

/// Returns a config that a session or a pool can run with: validate() finds nothing, and rank is a number.
/// Refuses (errc::config) with one line for each mistake, "loader.workers: ...".
tl::expected<penstock::config, failure> accept(penstock::config values, const environment_list& environment,
                                               config_purpose purpose = config_purpose::stream);

}  // namespace penstock::config_file
