// Formats a live session's answers as tables. Pure: JSON in, text out. Used by status, events and description.cpp.
#pragma once

#include "tools/penstock/targets.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

[[nodiscard]] std::string status_for_people(const nlohmann::ordered_json& status, const target& meant,
                                            std::size_t width);
/// A suggested next command; empty if all is well.
[[nodiscard]] std::string hint_after_status(const nlohmann::ordered_json& status);

/// One event in one line: date and time (UTC), who, what.
[[nodiscard]] std::string event_for_people(const nlohmann::ordered_json& event, std::size_t width);

}  // namespace penstock::cli
