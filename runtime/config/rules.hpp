// What must hold between the values of several keys. Pure, on a penstock::config, so that configs from files
// and configs built in code keep the same rules.
#pragma once

#include <penstock/config.hpp>

#include <string>
#include <vector>

namespace penstock::config_file {

/// A rule that is broken. `key` is where the mistake most likely is, `other` is what it contradicts (may be
/// empty). Paths are those of the key table; of faults "dataset.faults[2].sample".
struct contradiction {
  std::string key = {};
  std::string other = {};
  std::string message = {};
  std::string label = {};
  std::string help = {};
  bool missing = false;  ///< `key` should be given and is not
};

std::vector<contradiction> contradictions_of(const penstock::config& values);

}  // namespace penstock::config_file
