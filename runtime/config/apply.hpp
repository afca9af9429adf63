// The layers of a load put into a penstock::config, one after the other, each value checked wherever it
// stands. Keeps where each value came from, for provenance and for pointing at contradictions.
#pragma once

#include "runtime/config/key_table.hpp"
#include "runtime/config/layers.hpp"

#include <map>
#include <set>
#include <string>

namespace penstock::config_file {

/// Where the value that counts stands.
struct value_place {
  span key;
  span value;
};

struct applied {
  penstock::config values;
  std::map<std::string, value_place> places;  ///< by path: keys, entries of maps, "dataset.faults[2].sample"
  std::map<std::string, span> tables;         ///< names of tables, where they were written last
  std::set<std::string>
      broken;  ///< keys whose value is wrong: complaints about what follows from it are left out
};

/// Reads [vars] of all layers into `references`, for apply().
void collect_variables(const layer_stack& stack, reference_values& references, applied& into,
                       complaints& found);

/// Everything but [vars] and include.
void apply(const layer_stack& stack, const reference_values& references, applied& into, complaints& found);

}  // namespace penstock::config_file
