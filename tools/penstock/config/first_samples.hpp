// Which members the first samples of a tar dataset have, from a few headers of its first shard. Used by check-config.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::cli {

struct first_samples {
  std::string shard;                                                        ///< its name
  std::vector<std::pair<std::string, std::vector<std::string>>> extensions;  ///< for each key, in the shard's order: its extensions in lower case
};

/// Reads at most 64 headers. Empty if the shard cannot be read here: an object, a compressed shard, a damaged one. `penstock run` says what
/// is wrong with it.
[[nodiscard]] std::optional<first_samples> look_at_first_samples(const std::string& path);

}  // namespace penstock::cli
