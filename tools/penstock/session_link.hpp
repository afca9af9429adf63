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
/// The deadline when querying many sessions, or one repeatedly while waiting: a later answer would be
/// useless.
inline constexpr std::chrono::milliseconds look_deadline{1'000};

/// Which session to use, and whether to print JSON.
struct session_choice {
  std::string session;
  std::string socket;
  std::string group{};      ///< all ranks of it
  bool for_groups = false;  ///< the verb can do that: add_group_choice()
  bool as_json = false;
  bool last = false;           ///< --last: the session that ended last
  std::string reading_verb{};  ///< set for verbs that can read ended sessions: add_past_choice()
};

/// --session, --socket and --json; and --group, which choose() refuses, saying what to type instead.
void add_session_choice(CLI::App& verb, session_choice& into);
/// For verbs that ask group_meant() before choose(): --group is for all ranks at once.
void add_group_choice(CLI::App& verb, session_choice& into);

/// Tells that none of these is the group that --group names; gives the exit code.
int no_such_group(const session_choice& choice, const std::vector<live_group>& groups);

/// Tells that --group may mean any of these, and how to name each; gives the exit code.
int refuse_ambiguous(const session_choice& choice, const std::vector<live_group>& groups);

/// Tells that a verb's target does not exist; gives the exit code.
int no_such_target(const session_choice& choice, const std::string& why);
/// For that: "'x' is not a target; there are: ...".
[[nodiscard]] std::string not_a_target(const std::string& word);

/// Tells that a session cannot be reached, or has not answered in time; gives the exit code.
int refuse_unreached(const session_choice& choice, const failure& why);

struct chosen_socket {
  std::filesystem::path path;  ///< or an ended session's record
  int refused = exit_ok;       ///< an exit code; the reason has been printed
};
[[nodiscard]] chosen_socket choose(const session_choice& choice);

/// The session's answer: its result, or an exit code; the error has been printed.
struct session_answer {
  nlohmann::ordered_json result;
  int refused = exit_ok;
};
/// Asks a session over its socket, or reads the answer in the record of one that has ended.
[[nodiscard]] result<nlohmann::ordered_json> ask(const std::filesystem::path& session,
                                                 nlohmann::ordered_json question,
                                                 std::optional<std::chrono::milliseconds> deadline);
/// Sends a request and waits for the answer.
[[nodiscard]] session_answer request(const session_choice& choice, const std::filesystem::path& socket,
                                     nlohmann::ordered_json question,
                                     std::optional<std::chrono::milliseconds> deadline = answer_deadline);

/// The result in a session's answer, or the exit code of a refusal, which has been printed.
[[nodiscard]] session_answer understand(const session_choice& choice, const nlohmann::ordered_json& answer);

/// choose() and request() in one; prints a good answer as JSON if requested, else passes it to `tell`.
int ask_session(const session_choice& choice, nlohmann::ordered_json question,
                std::optional<std::chrono::milliseconds> deadline,
                const std::function<void(const nlohmann::ordered_json&)>& tell);

}  // namespace penstock::cli
