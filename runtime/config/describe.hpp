// The key table as text: for editors (JSON Schema), for the docs, for `check-config`, and for comparing
// ranks. Pure functions of the table in <penstock/config_keys.def>.
#pragma once

#include "runtime/config/load.hpp"

#include <string>
#include <utility>
#include <vector>

namespace penstock::config_file {

/// JSON Schema, draft-07, of the file. It accepts what load() accepts and rejects what a schema can see:
/// unknown keys, types, ranges of numbers, spellings of enums, the form of durations and sizes. It cannot see
/// contradictions between keys, ranges of durations, or the value of a ${...}. Ends with a newline.
std::string json_schema();

/// docs/config.md: every table and key with type, default, limits and meaning.
std::string reference_markdown();

/// `check-config --explain`: which table configures which actor, and what every key does.
std::string explain();

/// `check-config --print-effective`: a TOML file with every key and, after each value, its source.
/// Loading it gives the same values. (Bytes that are not UTF-8, which only a value from the environment can
/// contain, are shown as \xNN and do not survive.)
std::string print_effective(const loaded_config& loaded);

/// Like print_effective(), but without the sources of the values.
std::string print_values(const config& settings);

/// The keys whose values must be equal in all ranks of a group, as TOML: those that define the stream, and
/// those that say how the group handles losses. Always the same keys, in the order of the table.
std::vector<std::pair<std::string, std::string>> stream_settings(const config& settings);

}  // namespace penstock::config_file
