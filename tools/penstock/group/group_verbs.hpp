// Verbs that act on all ranks of a group at once. Used by the verbs for live sessions, which accept --group.
#pragma once

#include "tools/penstock/group/asked_ranks.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <functional>
#include <optional>

namespace penstock::cli {

/// Gives an order to all ranks: "paused 4 ranks of photos". Names the ranks that did not carry it out.
int order_group(const session_choice& choice, const live_group& group, const nlohmann::ordered_json& question,
                const std::string& told, const std::string& told_unchanged = {});
/// "restart" or "drain" for the workers that `which` selects from each rank's status. Reports per rank which
/// workers were changed and which were not. Exit code 4 if no rank has such a worker. `now`: kills them.
int change_workers_of_group(
    const session_choice& choice, const live_group& group, const std::string& verb, bool now,
    const std::function<std::vector<std::uint32_t>(const nlohmann::ordered_json& status)>& which);
/// order_group with "stop". With `wait`, waits until the ranks' sockets are gone, and then reports that they
/// have stopped.
int stop_group(const session_choice& choice, const live_group& group, bool now, bool wait,
               std::optional<std::chrono::milliseconds> longest);

/// {"schema": "penstock.group-status/1", "group", "job", "ranks": [{"rank", "session", "status"}]}.
[[nodiscard]] nlohmann::ordered_json status_of_group(const live_group& group);
int show_group(const session_choice& choice, const live_group& group, bool check);
/// The deaths of ranks, as seen by rank 0, and of each rank's workers and GPU owners.
int deaths_of_group(const session_choice& choice, const live_group& group);
/// Repeats the table of show_group, with rates; `once`: a single screen.
int top_of_group(const session_choice& choice, const live_group& group, std::chrono::milliseconds every,
                 bool once);

}  // namespace penstock::cli
