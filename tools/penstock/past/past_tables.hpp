// Sessions that have ended, as text. Pure: summaries of past_session in, text out.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// "failed 8 h ago: the dataset is gone", from a summary or from the status of an ended session.
[[nodiscard]] std::string end_in_words(const nlohmann::ordered_json& summary);

/// The files that the session has written or should have written, with their positions, and how to resume if it died;
/// complete lines. From a summary or from the status of an ended session.
[[nodiscard]] std::string files_at_end(const nlohmann::ordered_json& ended);

/// The table of `sessions --ended`. `width`: columns of the terminal; 0 for no limit.
[[nodiscard]] std::string ended_for_people(const nlohmann::ordered_json& ended, std::size_t width);

}  // namespace penstock::cli
