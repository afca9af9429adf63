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

/// Whether the event says that the sample was lost with its batch.
[[nodiscard]] bool is_lost_with_batch(const nlohmann::ordered_json& what, const std::string& sample);

/// The workers that are loading the sample, from a status: [{"sample", "path", "worker", "pid", "attempt", "seconds", "batch_seconds", "seen",
/// "stalled_seconds"}]. `attempt` is null in a data loader; `seconds` is null if only the time since its batch was begun is known. `seen`: when
/// that was so, if the status is from a record; else null. `stalled_seconds`: for how long the stream has waited for it; null if it does not.
[[nodiscard]] nlohmann::ordered_json loading_now(const nlohmann::ordered_json& status, const std::string& sample);

/// {"sample", "loading": loading_now(), "events", "batch", "quarantine": null or its entry}. `events` also has the recovery and the loss of its batch.
/// `batch`: {"epoch", "seq", "with_it", "delivered"} of the last event; null if no event names a batch. `delivered` is false if the status
/// and the events do not say.
[[nodiscard]] nlohmann::ordered_json history_of(const std::string& sample, const nlohmann::ordered_json& status,
                                                const nlohmann::ordered_json& all_events, const nlohmann::ordered_json& quarantine_list);

/// The deaths in a history that are blamed on its sample.
[[nodiscard]] nlohmann::ordered_json deaths_in_history(const nlohmann::ordered_json& about);

/// Whether both have the same `epoch` and `seq`.
[[nodiscard]] bool is_same_batch(const nlohmann::ordered_json& one, const nlohmann::ordered_json& other);

/// `about`: history_of(), and `stacks` from stacks_by_attempt() if they are to be shown. `width`: columns of the terminal; 0 for no limit.
[[nodiscard]] std::string history_for_people(const nlohmann::ordered_json& about, std::size_t width);

/// Why there is nothing to describe of a sample. Claims no more than the status and the events know.
[[nodiscard]] std::string nothing_recorded_of(const std::string& sample, const nlohmann::ordered_json& status,
                                              const nlohmann::ordered_json& all_events);

/// From a status: "2 sample failures, 1 sample quarantined; the last failure: ..."; for a data loader also how many samples its batches lack, and
/// how many were lost with their batches. Empty if there are none, and for a pool.
[[nodiscard]] std::string lost_for_people(const nlohmann::ordered_json& status);

}  // namespace penstock::cli
