// Rules that involve several keys. Pure functions of a penstock::config, so that configs from files and
// configs built in code follow the same rules.
#pragma once

#include <penstock/config.hpp>

#include <string>
#include <vector>

namespace penstock::config_file {

/// A broken rule. `key` is where the mistake most likely is; `other`, which may be empty, is the key that it
/// contradicts. Paths are those of the key table; for faults "dataset.faults[2].sample".
struct contradiction {
  std::string key = {};
  std::string other = {};
  std::string message = {};
  std::string label = {};
  std::string help = {};
  bool missing = false;   ///< `key` is required and missing
  bool doubtful = false;  ///< allowed, but probably not intended: a warning
  bool until_complete = false;  ///< allowed in a file if a program sets more keys after loading it
};

/// What a config is for: a stream of batches, or a pool of jobs, which ignores [dataset], [image] and
/// [sampler].
enum class config_purpose : std::uint8_t { stream, jobs };

std::vector<contradiction> contradictions_of(const penstock::config& values,
                                             config_purpose purpose = config_purpose::stream);

}  // namespace penstock::config_file
