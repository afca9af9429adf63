// Finds the ended session that a verb means: --last, or --session with the ID listed by `penstock sessions
// --ended`. Used by session_link.
#pragma once

#include "runtime/control/session_record.hpp"
#include "tools/penstock/past/past_tables.hpp"
#include "tools/penstock/session_link.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace penstock::cli {

/// Adds --last, and IDs of ended sessions for --session, to verbs that only read.
void add_past_choice(CLI::App& verb, session_choice& into);
[[nodiscard]] bool means_past(const session_choice& choice);
/// The record of that session, or an exit code after printing why there is none.
[[nodiscard]] chosen_socket choose_past(const session_choice& choice);

/// " --last", " --session NAME" or " --socket PATH", as given: completes commands that are printed after reading a
/// session, so that they mean the same one.
[[nodiscard]] std::string choice_in_words(const session_choice& choice);

/// The ranks of this group's last launch that has ended, for --last with --group. Empty if none left a
/// record.
[[nodiscard]] std::optional<live_group> past_group(const std::string& name);
/// Reports that no ended group is known by this name; returns the exit code.
int no_such_past_group(const session_choice& choice);

/// If no session is live: the command that reads the last ended session (`status` if this verb cannot read records).
[[nodiscard]] std::string next_for_past(const session_choice& choice);

/// How the session of this record ended, with the reason of any outcome. Empty: the record cannot be read.
[[nodiscard]] std::string end_with_reason(const std::filesystem::path& record);

/// With --last, for people: prints which session this record belongs to and how it ended; for a rank, it also prints how to read its whole group.
void tell_last(const session_choice& choice, const std::filesystem::path& record);
/// With --last and without a name: if the session was a rank, how to show the other ranks of its group, too.
void tell_rank_of_last(const session_choice& choice, const std::filesystem::path& record);

/// "'photos' failed 8 h ago: the dataset is gone": how the last session of this name ended, or of any name if this one is empty. Empty:
/// none has left a record.
[[nodiscard]] std::string last_end_in_words(const std::string& session);

/// The summary (past_session::summary()) and "id" of the last ended session of this name, or of any name if this one is
/// empty. `session` may be an ID.
[[nodiscard]] std::optional<nlohmann::ordered_json> last_ended(const std::string& session);

/// Whether this record is written by the session behind this socket. `pid`: its process; 0: unknown.
[[nodiscard]] bool is_record_of(const control::found_record& record, const std::filesystem::path& socket, int pid);

/// The record that the session behind this socket writes. `pid`: the
/// session's process; 0: unknown. Empty: the session writes none.
[[nodiscard]] std::optional<control::found_record> live_record_of(const std::filesystem::path& socket, int pid);

/// The record of the session that listened here and has ended; waits until the record is complete. `pid`: its process; if 0
/// (unknown), takes the last session of that name. Empty: the session left none.
[[nodiscard]] std::optional<std::filesystem::path> record_of(const std::filesystem::path& socket, int pid);

/// files_at_end() of an ended session; empty for a live or suspended one.
[[nodiscard]] std::string files_of_ended(const std::filesystem::path& session);

[[nodiscard]] bool has_ended_sessions();
/// Ended sessions, the one that ended last first: past_session::summary() with "id" first. `name`: only those with that name or ID.
[[nodiscard]] nlohmann::ordered_json ended_sessions(const std::string& name = {});

}  // namespace penstock::cli
