// Formats a live session's answers as tables. Pure: JSON in, text out. Used by status, deaths, events and description.cpp.
#pragma once

#include "tools/penstock/targets.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// A value as people read it: text without quotes, "-" for null.
[[nodiscard]] std::string text_of(const nlohmann::ordered_json& value);
/// "2026-11-24 18:33:44.123", of a time in UTC as answers have it.
[[nodiscard]] std::string utc_for_people(const nlohmann::ordered_json& time);
/// "ready", "backoff 1.5 s", "stopped (..)": of a worker in status.
[[nodiscard]] std::string state_of(const nlohmann::ordered_json& worker);

[[nodiscard]] std::string status_for_people(const nlohmann::ordered_json& status, const target& meant,
                                            std::size_t width);
/// A suggested next command; empty if all is well.
[[nodiscard]] std::string hint_after_status(const nlohmann::ordered_json& status);
[[nodiscard]] std::string hint_after_deaths(const nlohmann::ordered_json& deaths);
/// `of_jobs`: in a pool.
[[nodiscard]] std::string deaths_for_people(const nlohmann::ordered_json& deaths, bool of_jobs,
                                            std::size_t width);

/// Of workers and of GPU owners, oldest first: the answer to "deaths" as one list.
[[nodiscard]] nlohmann::ordered_json all_deaths(const nlohmann::ordered_json& answer);

/// Whether it is the status of a pool of jobs.
[[nodiscard]] bool is_pool(const nlohmann::ordered_json& status);
/// "40 jobs submitted, 12 waiting, 2 running, 25 ok, 1 failed", from a pool's statistics.
[[nodiscard]] std::string jobs_for_people(const nlohmann::ordered_json& jobs);

/// "worker/3", "worker/64 (sacrificial)": for an entry of status, or of deaths.
[[nodiscard]] std::string worker_name(const nlohmann::ordered_json& one);
/// "worker/64*": in a column, whose width it shares with all other workers. `star_explained` says below the table what it means.
[[nodiscard]] std::string worker_cell(const nlohmann::ordered_json& one);
inline constexpr const char* star_explained =
    "* the sacrificial worker: it tries alone what may have killed others";
/// The sacrificial worker, while nothing has to be tried alone: a row of it would say nothing.
[[nodiscard]] bool is_not_needed(const nlohmann::ordered_json& worker);
/// "8 s, waiting for worker/3, which ...": for how long it is stalled; empty while the stream moves.
[[nodiscard]] std::string stall_for_people(const nlohmann::ordered_json& status);

/// One event in one line: date and time (UTC), who, what.
[[nodiscard]] std::string event_for_people(const nlohmann::ordered_json& event, std::size_t width);

/// "SIGSEGV", "exit 3", "hang": how a process ended.
[[nodiscard]] std::string ending_of(const nlohmann::ordered_json& death);

}  // namespace penstock::cli
