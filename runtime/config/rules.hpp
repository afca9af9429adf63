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

/// What a config is for: a stream of batches, or a pool of jobs, in which [dataset], [image] and [sampler] play no part.
enum class config_purpose : std::uint8_t { stream, jobs };

std::vector<contradiction> contradictions_of(const penstock::config& values,
                                             config_purpose purpose = config_purpose::stream);

}  // namespace penstock::config_file
