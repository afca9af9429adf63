// What a session that takes long to stop waits for. Pure; used by stop, status and why.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::cli {

/// One thing that has not ended yet.
struct awaited_end {
  std::string what;   ///< "worker/0": identifies it across calls
  std::string words;  ///< "worker/0, which has been working on cat.jpg for 7.2 s; it is killed ..."
};

/// What a stopping session waits for, from its status: its workers, else its GPU owner, else its group, else its
/// program.
[[nodiscard]] std::vector<awaited_end> awaited_ends(const nlohmann::ordered_json& status);

/// What will hold up the stop that has just begun: lines about workers that have been busy with one sample for a second. Empty: nothing.
[[nodiscard]] std::string held_up_by(const nlohmann::ordered_json& status);

/// awaited_ends() as JSON: [{"target": "worker/0", "text": ...}]; null unless the session is stopping.
[[nodiscard]] nlohmann::ordered_json stopping_for(const nlohmann::ordered_json& status);
/// The list of stopping_for() as text, a line for each: "waiting for worker/0 ..".
[[nodiscard]] std::string stopping_in_words(const nlohmann::ordered_json& stopping, std::size_t width);

}  // namespace penstock::cli
