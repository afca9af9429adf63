// How verbs reach a live session: choosing one, sending a request, and reporting errors. Used by every verb
// that operates a session.
#pragma once

#include "tools/penstock/group/rank_names.hpp"
#include "tools/penstock/output.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace penstock::cli {

inline constexpr std::chrono::milliseconds answer_deadline{10'000};
/// The deadline for queries of many sessions, or for repeated queries while waiting: a later answer would be
/// useless.
inline constexpr std::chrono::milliseconds look_deadline{1'000};

/// Which session to use, and whether to print JSON.
struct session_choice {
  std::string session;
  std::string socket;
  std::string group{};      ///< all ranks of this group
  bool for_groups = false;  ///< the verb supports --group: add_group_choice()
  bool as_json = false;
  bool last = false;           ///< --last: the most recently ended session
  std::string reading_verb{};  ///< set for verbs that can read ended sessions: add_past_choice()
  std::string next_if_ended{};  ///< the command to suggest if the session has ended, in place of one that reads its record
};

/// Adds --session, --socket and --json; also --group, which choose() refuses with a hint on what to type
/// instead.
void add_session_choice(CLI::App& verb, session_choice& into);
/// For verbs that call group_meant() before choose(): --group then means all ranks at once.
void add_group_choice(CLI::App& verb, session_choice& into);

/// Reports that --group names none of these groups; returns the exit code.
int no_such_group(const session_choice& choice, const std::vector<live_group>& groups);

/// Reports that --group may mean any of these, and how to name each; returns the exit code.
int refuse_ambiguous(const session_choice& choice, const std::vector<live_group>& groups);

/// Reports that a verb's target does not exist; returns the exit code.
int no_such_target(const session_choice& choice, const std::string& why);
/// no_such_target for a worker that is not in this list, of workers or of their ids.
int no_such_worker(const session_choice& choice, const std::string& target, const nlohmann::ordered_json& workers);
/// The reason for no_such_target: "'x' is not a target; targets are: ...". `more`: what the verb takes in addition to targets_text.
[[nodiscard]] std::string not_a_target(const std::string& word, std::string_view more = "");

/// Reports that a session cannot be reached, or did not answer in time; returns the exit code.
int refuse_unreached(const session_choice& choice, const failure& why);

struct chosen_socket {
  std::filesystem::path path;  ///< the session's socket, or an ended session's record
  int refused = exit_ok;       ///< exit code of an error that has been printed
};
[[nodiscard]] chosen_socket choose(const session_choice& choice);
/// choose(), for a verb that shows the session: says which one --last means.
[[nodiscard]] chosen_socket choose_to_show(const session_choice& choice);

/// The session's answer: its result, or an exit code; the error has been printed.
struct session_answer {
  nlohmann::ordered_json result;
  int refused = exit_ok;
};
/// Asks a session over its socket, or reads the answer from the record of an ended one.
[[nodiscard]] result<nlohmann::ordered_json> ask(const std::filesystem::path& session,
                                                 nlohmann::ordered_json question,
                                                 std::optional<std::chrono::milliseconds> deadline);
/// "the session's process (pid 17) is suspended (SIGSTOP); after `kill -CONT 17` it carries out
/// this request". Empty: the process is running, or cannot be examined from here.
[[nodiscard]] std::string if_suspended(int pid);
/// "the session's process (pid 17) has been suspended since 11-24 18:39:44 UTC (SIGSTOP); `kill -CONT 17`
/// resumes it". Empty: the process runs, cannot be seen from here, or has ended.
[[nodiscard]] std::string suspension_of(const std::filesystem::path& session);
[[nodiscard]] std::string suspension_of(const std::filesystem::path& socket, int pid);
/// suspension_of() for the session that writes this record.
[[nodiscard]] std::string suspension_of_record(const std::filesystem::path& record);
/// Sends a request and waits for the answer. Says so at once if the session's process is suspended.
[[nodiscard]] session_answer request(const session_choice& choice, const std::filesystem::path& socket,
                                     nlohmann::ordered_json question,
                                     std::optional<std::chrono::milliseconds> deadline = answer_deadline);

/// The result in a session's answer; for a refusal, which this prints, the exit code.
[[nodiscard]] session_answer understand(const session_choice& choice, const nlohmann::ordered_json& answer);

/// choose() and request() in one call. Prints a result as JSON of this schema if requested, otherwise passes
/// it to `tell`.
int ask_session(const session_choice& choice, std::string_view schema, nlohmann::ordered_json question,
                std::optional<std::chrono::milliseconds> deadline,
                const std::function<void(const nlohmann::ordered_json&)>& tell);

}  // namespace penstock::cli
