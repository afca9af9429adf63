// The texts of one load, in the order of their precedence: includes, the file, the environment, --set. Each
// becomes a tree of the same shape. Checks only that the texts can be read and parsed.
#pragma once

#include "runtime/config/document.hpp"
#include "runtime/config/interpolation.hpp"
#include "runtime/config/load.hpp"

#include <deque>
#include <set>
#include <string>
#include <vector>

namespace penstock::config_file {

struct layer {
  const source* from = nullptr;
  node root;
};

/// Must outlive everything that points into its texts.
struct layer_stack {
  std::deque<source> sources;
  std::vector<layer> layers;  ///< lowest precedence first
  std::vector<std::string> included;
  bool complete = true;          ///< false: some file could not be read, so a missing key is not an error
  std::set<std::string> broken;  ///< keys that are set to a value that could not be parsed
  int unreadable = 0;            ///< errno of the file itself

  const source& add_source(source_kind kind, std::string name, std::string text,
                           std::filesystem::path folder);
};

/// Reads the file and everything it includes. `references` are for the names of includes.
void add_files(layer_stack& stack, const source_request& request, const reference_values& references,
               complaints& found);

/// Adds a layer for each PENSTOCK__TABLE__KEY variable and for each override.
void add_environment(layer_stack& stack, const source_request& request, complaints& found);
void add_overrides(layer_stack& stack, const source_request& request, complaints& found);

}  // namespace penstock::config_file
