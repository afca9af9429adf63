// Checks that need all layers merged: rank = "auto", contradictions between keys, keys without effect.
#pragma once

#include "runtime/config/apply.hpp"
#include "runtime/config/rules.hpp"

#include <map>
#include <string>

namespace penstock::config_file {

/// Replaces rank = "auto" by the rank in the launcher's variables, and records these as the source of rank and world
/// size.
void adopt_rank(applied& made, const environment_list& environment, severity level_of_warnings,
                std::map<std::string, provenance>& sources, complaints& found);

/// A file with [jobs] and without [dataset] configures a pool.
config_purpose purpose_of(const applied& made);

/// Reports a file for a pool that was given to a command or session that delivers a stream.
void complain_of_pool(const applied& made, const source& main, complaints& found);

/// Reports each broken rule at the key that breaks it, except for keys whose value is already wrong. `main`:
/// the source to show for a missing key if its table is missing too. `complete`: no program will set more
/// keys.
void complain_of_contradictions(const applied& made, const source& main, config_purpose purpose,
                                bool complete, severity level_of_warnings, complaints& found);

/// Reports values that were set, differ from the default, and have no effect with the rest of the config.
void complain_of_unused(const applied& made, severity level_of_warnings, complaints& found);

}  // namespace penstock::config_file
