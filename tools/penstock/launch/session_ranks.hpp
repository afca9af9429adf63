// `penstock launch FILE`: sessions as ranks. Pure: the arguments of each rank's `penstock run`, and the
// ranks' part of the group's report.
#pragma once

#include "tools/penstock/launch/launch_book.hpp"
#include "tools/penstock/launch/launch_plan.hpp"

#include <nlohmann/json.hpp>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

struct session_work {
  std::string file;
  std::string name;                    ///< the session's name in the file; each rank adds "-rank0", ...
  std::string metrics_listen;          ///< [metrics] listen: the ranks use this port and the following ones
  std::vector<std::string> arguments;  ///< for `penstock run`, the same for every rank
  std::string sink;                    ///< each rank adds its number to journal:PATH
  std::string out;                     ///< contains one folder per rank
  std::string report_folder;
};

[[nodiscard]] std::string report_path(const session_work& work, std::uint32_t rank);
/// argv[1..] of the rank.
[[nodiscard]] std::vector<std::string> rank_arguments(const session_work& work, const rank_place& place,
                                                      std::uint32_t rank);

/// The rank's own report (penstock.run/1; empty if it wrote none) with `rank`, `world_size` and `process`.
[[nodiscard]] nlohmann::ordered_json rank_report(const std::string& own, std::uint32_t rank,
                                                 std::uint32_t world_size, nlohmann::ordered_json process);

/// Why a rank's session failed, according to its report.
struct reported_cause {
  std::string text;  ///< empty: the report does not say
  std::optional<std::uint32_t>
      rank{};      ///< the rank that the group's first cause names; none: this session itself
  pid_t pid = -1;  ///< the pid of that rank
};
/// The group's first cause, if that is a process that had joined; otherwise the session's own error.
[[nodiscard]] reported_cause cause_in(const std::string& own_report);

}  // namespace penstock::cli
