// The history of bad samples, and of a single one: `penstock describe sample/N`. Pure: JSON in, JSON or text out.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::cli {

/// The N of "sample/N": a number or a name. Empty for other targets.
[[nodiscard]] std::optional<std::string> sample_in_target(std::string_view target);

/// Whether the event, or an entry of `quarantine list`, is about this sample.
[[nodiscard]] bool is_about_sample(const nlohmann::ordered_json& what, const std::string& sample);

/// `about`: {"sample", "events": [...], "quarantine": null or its entry}. `width`: columns of the terminal; 0 for no limit.
[[nodiscard]] std::string history_for_people(const nlohmann::ordered_json& about, std::size_t width);

/// From a status: "2 sample failures, 1 sample quarantined; the last failure: ..."; for a data loader also how many samples its batches lack. Empty
/// if there are none, and for a pool.
[[nodiscard]] std::string lost_for_people(const nlohmann::ordered_json& status);

}  // namespace penstock::cli
