// Which ended session a verb means: --last, or --session with the ID that `penstock sessions --ended` lists. Used by
// session_link.
#pragma once

#include "tools/penstock/session_link.hpp"

#include <string>

namespace penstock::cli {

/// For verbs that only read: --last, and IDs of ended sessions for --session.
void add_past_choice(CLI::App& verb, session_choice& into);
[[nodiscard]] bool means_past(const session_choice& choice);
/// The record of that session, or the exit code of a refusal, which has been printed.
[[nodiscard]] chosen_socket choose_past(const session_choice& choice);

/// " --last", or the ID as it was given, for commands that are printed after reading an ended session; empty after a live one.
[[nodiscard]] std::string past_choice_in_words(const session_choice& choice);

/// The ranks of the last launch of this group that has ended: with --last and --group. Nothing if none has left a record.
[[nodiscard]] std::optional<live_group> past_group(const std::string& name);

/// If no session is live: the command that reads the last one, and how that ended. Empty if there is none, or the verb cannot.
[[nodiscard]] std::string next_for_past(const session_choice& choice);

/// "failed 8 h ago: the dataset is gone", from a summary or the status of an ended session.
[[nodiscard]] std::string end_in_words(const nlohmann::ordered_json& summary);

[[nodiscard]] bool has_ended_sessions();
/// Ended sessions, the newest first: past_session::summary() with "id" in front.
[[nodiscard]] nlohmann::ordered_json ended_sessions();
[[nodiscard]] std::string ended_for_people(const nlohmann::ordered_json& ended, std::size_t width);

}  // namespace penstock::cli
