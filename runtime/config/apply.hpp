// Applies the layers of a load to a penstock::config in order, checking each value. Records where each value
// came from, for provenance and for messages about contradictions.
#pragma once

#include "runtime/config/key_table.hpp"
#include "runtime/config/layers.hpp"

#include <map>
#include <set>
#include <string>

namespace penstock::config_file {

/// Where the effective value is written.
struct value_place {
  span key;
  span value;
};

struct applied {
  penstock::config values;
  std::map<std::string, value_place> places;  ///< by path of a key or of an entry of a map, such as "dataset.faults[2].sample"
  std::map<std::string, span> tables;         ///< names of tables, at their last place in the texts
  std::set<std::string> broken;  ///< keys with a wrong value: follow-up errors about them are suppressed
};

/// Reads [vars] of all layers into `references`, for apply().
void collect_variables(const layer_stack& stack, reference_values& references, applied& into,
                       complaints& found);

/// Applies everything but [vars] and include.
void apply(const layer_stack& stack, const reference_values& references, applied& into, complaints& found);

}  // namespace penstock::config_file
