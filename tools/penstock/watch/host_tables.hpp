// Formats what a session reports about its loader hosts. Pure: JSON in, text out. Used by status and top.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::cli {

/// A list in the status; empty if there is none, or no status.
[[nodiscard]] nlohmann::ordered_json list_in(const nlohmann::ordered_json& status, const char* key);

/// "12 s ago: it was silent for 5 s", from an entry of `hosts_lost`.
[[nodiscard]] std::string lost_in_words(const nlohmann::ordered_json& lost);

/// Whether the status is of a session with [loader.hosts].
[[nodiscard]] bool has_hosts(const nlohmann::ordered_json& status);

/// The section of `penstock status`: the hosts, the lost hosts, and what the session waits for. Empty without [loader.hosts].
[[nodiscard]] std::string hosts_for_people(const nlohmann::ordered_json& status, std::size_t width);

/// The section of `penstock top`, at most `lines_max` lines: the head, then hosts, draining ones first; the rest are summed up.
[[nodiscard]] std::vector<std::string> host_lines(const nlohmann::ordered_json& status, std::size_t lines_max, std::size_t width);

}  // namespace penstock::cli
