// `penstock launch FILE`: a session as a rank. Pure: which arguments each rank's `penstock run` gets, and what the group's
// report says of it.
#pragma once

#include "tools/penstock/launch/launch_book.hpp"
#include "tools/penstock/launch/launch_plan.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::cli {

struct session_work {
  std::string file;
  std::string name;  ///< of the session in the file; each rank's gets "-rank0", ...
  std::string
      metrics_listen;  ///< [metrics] listen: each rank gets a port of its own, this one and the following
  std::vector<std::string> arguments;  ///< of run, for every rank
  std::string sink;                    ///< journal:PATH gets the rank
  std::string out;                     ///< a folder for each rank in it
  std::string report_folder;
};

[[nodiscard]] std::string report_path(const session_work& work, std::uint32_t rank);
/// argv[1..] of the rank.
[[nodiscard]] std::vector<std::string> rank_arguments(const session_work& work, const rank_place& place,
                                                      std::uint32_t rank);

/// The rank's own report (penstock.run/1; empty if it wrote none) with `rank`, `world_size` and `process`.
[[nodiscard]] nlohmann::ordered_json rank_report(const std::string& own, std::uint32_t rank,
                                                 std::uint32_t world_size, nlohmann::ordered_json process);
/// Why the session failed, in its own words; empty if its report does not say.
[[nodiscard]] std::string own_words(const std::string& own_report);

}  // namespace penstock::cli
