// What can be said only when all layers are merged: rank = "auto", contradictions between keys, keys without
// effect.
#pragma once

#include "runtime/config/apply.hpp"
#include "runtime/config/rules.hpp"

#include <map>
#include <string>

namespace penstock::config_file {

/// Replaces rank = "auto" by what the launcher's variables say, and records them as the source of rank and
/// world size.
void adopt_rank(applied& made, const environment_list& environment, severity level_of_warnings,
                std::map<std::string, provenance>& sources, complaints& found);

/// A file with [jobs] and without [dataset] configures a pool.
config_purpose purpose_of(const applied& made);

/// Each broken rule, at the key that breaks it; nothing about keys whose value is wrong anyway. `main` is
/// where a missing key is missing when its table is not there either.
void complain_of_contradictions(const applied& made, const source& main, config_purpose purpose,
                                complaints& found);

/// Values that were given, are not the default, and have no effect with the rest of the config.
void complain_of_unused(const applied& made, severity level_of_warnings, complaints& found);

}  // namespace penstock::config_file
