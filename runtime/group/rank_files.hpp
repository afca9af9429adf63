// Names of a rank's own files and ports, derived from names that all ranks share (rule L9). Pure. Used by
// sessions that join a group, by `penstock run` and by `penstock launch`.
//
// A path that already names the rank stays as it is: a launcher's script or one of these functions
// has put the number there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::group {

/// "photos-rank2"
[[nodiscard]] std::string with_rank(std::string_view name, std::uint32_t rank);

/// Whether the last part of a path, with or without its extension, ends in the rank's number:
/// "reports/rank2.json", "states/2", "report-02", "log.2". Neither "photos2" nor "data.h5" does.
[[nodiscard]] bool names_rank(std::string_view path, std::uint32_t rank);

/// The rank that a path names (names_rank), if it is not this rank: 2 for "run-2.state" in rank 1 of 4.
[[nodiscard]] std::optional<std::uint32_t> other_rank_named(std::string_view path, std::uint32_t rank,
                                                            std::uint32_t world_size);

/// "report.json-rank2". An empty name stays empty in all of these functions.
[[nodiscard]] std::string file_of_rank(const std::string& path, std::uint32_t rank);
/// "batches/rank2"
[[nodiscard]] std::string folder_of_rank(const std::string& path, std::uint32_t rank);
/// journal:PATH-rank2; other sinks write no file.
[[nodiscard]] std::string sink_of_rank(const std::string& sink, std::uint32_t rank);
/// HOST:PORT + rank. Port 0 stays 0, because the kernel chooses.
[[nodiscard]] std::string address_of_rank(const std::string& listen, std::uint32_t rank);

}  // namespace penstock::group
