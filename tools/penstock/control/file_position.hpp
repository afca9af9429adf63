// The position in the stream that a state or a report contains. Used wherever the files of a session are listed.
#pragma once

#include "runtime/schedule/epoch_book.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace penstock::cli {

/// "epoch 3, 768 samples delivered", "epoch 2 was complete".
[[nodiscard]] std::string position_in_words(const schedule::stream_state& state);

/// {"epoch": 3, "samples": 768, "text": "epoch 3, 768 samples delivered"}; `samples` are those of that epoch. Null: files of this kind have
/// no position, or the file cannot be read. `kind`: as in session_options::files.
[[nodiscard]] nlohmann::ordered_json position_in_file(const std::string& kind, const std::string& path);

}  // namespace penstock::cli
