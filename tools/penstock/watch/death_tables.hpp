// Formats the deaths of workers and GPU owners, and their cost. Pure: JSON in, text out. Used by status, deaths, describe,
// groups, ended sessions and metrics.
#pragma once

#include "runtime/base/work_kind.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// "SIGSEGV", "exit 3", "hang", "stopped (ordered)": how a process ended.
[[nodiscard]] std::string ending_of(const nlohmann::ordered_json& death);
/// Why the session killed the process, or the last line of a GPU owner's output; empty if neither is known.
[[nodiscard]] std::string reason_of_death(const nlohmann::ordered_json& death);
/// Who sent the signal that ended the process: "sent by another process or by its own code"; empty if the process's own
/// fault may
/// have raised the signal, or the session ended the process. With a sender,
/// no text may say that the work in hand caused the death.
[[nodiscard]] std::string sender_of(const nlohmann::ordered_json& death);
/// "loading sample 17385", "running job 7", "running collate_fn, with the samples [4, 5]"; empty if it did nothing.
[[nodiscard]] std::string work_at_death(const nlohmann::ordered_json& death, work_kind kind);
/// "SIGSEGV on 17385", or "SIGKILL, sent by another process or by its own code; was loading sample 17385".
[[nodiscard]] std::string death_in_a_cell(const nlohmann::ordered_json& death, work_kind kind);
/// Whether the process was killed because it had not stopped in time.
[[nodiscard]] bool was_killed_at_stop(const nlohmann::ordered_json& death);
/// Whether the process was restarted or drained on request, which does not count as a death (rule D24).
[[nodiscard]] bool ended_as_asked(const nlohmann::ordered_json& death);
/// Whether neither an operator, the program nor a limit ordered this death.
[[nodiscard]] bool is_unexpected_death(const nlohmann::ordered_json& death);

/// The deaths in an answer to "deaths" as one list of workers and GPU owners, oldest first, with processes that ended on request.
[[nodiscard]] nlohmann::ordered_json all_deaths(const nlohmann::ordered_json& answer);
/// {"signal": 2, "hang": 1}. Processes that were restarted or drained on request are not among them (rule D24).
[[nodiscard]] nlohmann::ordered_json deaths_by_cause(const nlohmann::ordered_json& deaths);
[[nodiscard]] std::string deaths_for_people(const nlohmann::ordered_json& deaths, work_kind kind, std::size_t width);
/// A suggested next command; empty if there is none. `has_stacks`: the stacks have been shown.
[[nodiscard]] std::string hint_after_deaths(const nlohmann::ordered_json& deaths, bool has_stacks = false);
/// hint_after_deaths() for one death.
[[nodiscard]] std::string look_into(const nlohmann::ordered_json& death);

/// "2 batches to load again": the cost of one death; empty if it cost nothing.
[[nodiscard]] std::string cost_of_death(const nlohmann::ordered_json& death, work_kind kind);
/// "deaths cost no sample; 8 batches were loaded again, 10 times in all; the stream waited 1.2 s because of them", from `deaths_cost` in
/// status or `cost` in deaths; empty: an older version does not say.
[[nodiscard]] std::string cost_of_deaths(const nlohmann::ordered_json& cost, work_kind kind);
/// "8 samples were lost with batches that raised an exception", from the same object; empty if none were.
[[nodiscard]] std::string lost_with_batches(const nlohmann::ordered_json& cost);
/// lost_with_batches(), and "2 sample failures without a death (`penstock events`)"; empty if there are neither.
[[nodiscard]] std::string losses_in_words(const nlohmann::ordered_json& cost);

/// Whether Python wrote this line as a part of a crashed worker's stack.
[[nodiscard]] bool is_python_stack_line(std::string_view line);
/// "read at data.py:12", newest first: what Python wrote into a crashed worker's last output; empty if it wrote nothing.
[[nodiscard]] std::vector<std::string> python_frames_in(std::string_view last_output);
/// The newest frames of a native stack, up to the first of the Python interpreter.
[[nodiscard]] std::vector<std::string> frames_before_interpreter(std::vector<std::string> stack);

}  // namespace penstock::cli
