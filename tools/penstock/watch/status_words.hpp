// Single facts of a live session's answers in words: states, progress, work, names. Pure: JSON in, text out. Used by all tables.
#pragma once

#include "runtime/base/work_kind.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace penstock::cli {

/// A value as text: strings without quotes, "-" for null.
[[nodiscard]] std::string text_of(const nlohmann::ordered_json& value);
/// How many workers and GPU owners of an entry of `sessions` ended unexpectedly; "-" if unknown. Those that were
/// killed at a stop did not.
[[nodiscard]] std::string deaths_in(const nlohmann::ordered_json& session);
/// "2026-11-24 18:33:44.123", for a UTC time from an answer.
[[nodiscard]] std::string utc_for_people(const nlohmann::ordered_json& time);
/// What utc_for_people() returns, without the year: "11-24 18:33:44".
[[nodiscard]] std::string without_year(const std::string& time);
/// Whether the worker is to be replaced because it exceeded its memory limit.
[[nodiscard]] bool is_over_memory(const nlohmann::ordered_json& worker);
/// "ready", "backoff 1.5 s", "stopped (..)": the state of a worker in status.
[[nodiscard]] std::string state_of(const nlohmann::ordered_json& worker);

/// What the session of this status, or of an entry of `sessions`, works on: it decides the words of every table.
[[nodiscard]] work_kind kind_of(const nlohmann::ordered_json& status);
/// kind_of(), from an answer with a field `of`.
[[nodiscard]] work_kind kind_of_answer(const nlohmann::ordered_json& answer);
/// Whether this is the status of a pool of jobs, or of a data loader.
[[nodiscard]] bool is_pool(const nlohmann::ordered_json& status);
/// What a worker is working on, and since when; "-" if it is idle.
[[nodiscard]] std::string work_since(const nlohmann::ordered_json& worker, work_kind kind);
[[nodiscard]] bool is_stalled(const nlohmann::ordered_json& status);
/// Neither stalled nor paused, so that the rate of the last 10 s says something about the near future.
[[nodiscard]] bool is_moving(const nlohmann::ordered_json& status);
/// Empty while unknown, and unless is_moving().
[[nodiscard]] std::optional<double> seconds_left(const nlohmann::ordered_json& status);
/// "8 s left", "less than 1 s left"; empty while unknown.
[[nodiscard]] std::string time_left_of(const nlohmann::ordered_json& status);
/// "34 %": the progress of the whole stream, from a status in which it is known.
[[nodiscard]] std::string percent_of(const nlohmann::ordered_json& status);
/// Rounded down: only a complete stream shows 100 %.
[[nodiscard]] std::string percent_of(double part);
/// The progress of a pool, "17 of 40 jobs", or of a data loader, "1883 batches, epoch 7".
[[nodiscard]] std::string progress_of_jobs(const nlohmann::ordered_json& status);
/// "epoch 5, 20464 of 100000 samples delivered", for a data loader "epoch 5, 4 of 10 batches delivered": without the total if it is unknown.
/// For a pool as progress_of_jobs().
[[nodiscard]] std::string position_of(const nlohmann::ordered_json& status);
/// "40 jobs submitted, 12 waiting, 2 running, 25 ok, 1 failed"; for a data loader "1883 batches delivered, 2 loading, 1 waiting for a
/// worker".
[[nodiscard]] std::string jobs_for_people(const nlohmann::ordered_json& status);

/// The functions in a pool's statistics; none for a Python pool or loader, which runs everything through one function.
[[nodiscard]] nlohmann::ordered_json functions_shown(const nlohmann::ordered_json& jobs);

/// What a worker is working on; empty: nothing.
[[nodiscard]] std::string work_of(const nlohmann::ordered_json& worker, work_kind kind);

/// "worker/3", "worker/64 (sacrificial)": for an entry in status or deaths.
[[nodiscard]] std::string worker_name(const nlohmann::ordered_json& one);
/// "worker/64*": for a column that all workers share. `star_explained` explains the star below the table.
[[nodiscard]] std::string worker_cell(const nlohmann::ordered_json& one);
inline constexpr const char* star_explained =
    "* the sacrificial worker: it loads alone what may have killed other workers";
/// Whether this is the sacrificial worker while no sample must be tried alone: its row would be meaningless.
[[nodiscard]] bool is_not_needed(const nlohmann::ordered_json& worker);
/// "5 m 2 s": how old something is, in whole seconds that have passed.
[[nodiscard]] std::string age_in_words(double seconds);
/// Of a status or of an answer to "why" or "describe": "ok", "ok, stalled", "stopping for 12 s".
[[nodiscard]] std::string state_in_words(const nlohmann::ordered_json& answer);
/// Whether an operator paused the session, rather than the program or `penstock headroom`.
[[nodiscard]] bool is_paused_by_operator(const nlohmann::ordered_json& answer);
/// Removes the advice at the end of a text about a stall or about work that has hung: it is useless once the session
/// ends.
[[nodiscard]] std::string without_way_out(std::string text);
/// "sample 'cats/tom.jpg' hung 2 times: in worker/0 at 23:04:05 after 40 s, ...", and what helps; from an entry of `hung` in status.
[[nodiscard]] std::string hung_for_people(const nlohmann::ordered_json& hung, work_kind kind);
/// "8 s, waiting for worker/3, which ...": how long the stream has stalled; empty while it moves. For an ended session,
/// without the advice.
[[nodiscard]] std::string stall_for_people(const nlohmann::ordered_json& status);

}  // namespace penstock::cli
