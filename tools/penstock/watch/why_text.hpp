// The text of `penstock why`, and of slow samples for `describe`. Pure: the session's answer to "why" in, text out.
#pragma once

#include "tools/penstock/targets.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// Keeps only the figures of these workers.
void limit_to(nlohmann::ordered_json& why, const target& meant);
/// `width`: columns of the terminal; 0 for no limit. `choice`: " --session NAME", for the commands that it recommends.
[[nodiscard]] std::string why_for_people(const nlohmann::ordered_json& why, std::size_t width, const std::string& choice = {});

/// "2.01 s: sample 17 (cats/tom.jpg), worker/1, 5 times, 8 s ago": from an entry of `slowest_samples`.
[[nodiscard]] std::string slow_sample_in_words(const nlohmann::ordered_json& one);

}  // namespace penstock::cli
