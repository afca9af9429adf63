// Verbs for live sessions, for all ranks of a group at once. Used by the verbs themselves, which take --group.
#pragma once

#include "tools/penstock/group/rank_names.hpp"
#include "tools/penstock/session_link.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <functional>
#include <optional>

namespace penstock::cli {

/// The group that a verb means: the one that --group names, or the only one if nothing is named.
struct meant_group {
  std::optional<live_group> group;  ///< empty: the verb means one session
  int refused = exit_ok;            ///< an exit code; the reason has been printed
};
[[nodiscard]] meant_group group_meant(const session_choice& choice);
/// Whether a rank of a group that --group may mean lives.
[[nodiscard]] bool group_is_there(const std::string& name);
/// The same group now: ranks come back with other sockets, and new ones appear. Nothing if none lives.
[[nodiscard]] std::optional<live_group> again(const live_group& group);

/// {"group", "job", "ranks": []}: what the JSON of these verbs begins with.
[[nodiscard]] nlohmann::ordered_json head_of(const live_group& group);

/// What each rank answers to a request; all are asked at once.
struct rank_answer {
  std::uint32_t rank = 0;
  std::string session;
  std::optional<nlohmann::ordered_json> result;
  std::string why_not;    ///< if there is no result
  int refused = exit_ok;  ///< then the exit code that a verb for this rank alone would have
};
[[nodiscard]] std::vector<rank_answer> ask_ranks(const live_group& group,
                                                 const nlohmann::ordered_json& question,
                                                 std::chrono::milliseconds deadline);

/// The exit code for a group, from those of its ranks: the one that all have, otherwise 7.
class rank_outcomes {
 public:
  void add(int code) noexcept;
  [[nodiscard]] int code() const noexcept { return code_.value_or(exit_ok); }

 private:
  std::optional<int> code_;
};

/// An order to all ranks, "paused 4 ranks of photos". Those that did not take it are named.
int order_group(const session_choice& choice, const live_group& group, const nlohmann::ordered_json& question,
                const std::string& told);
/// "restart" or "drain" for the workers that `which` finds in each rank's status. Says for each rank which of them were
/// changed, and which not. Exit code 4 if no rank has such a worker.
int change_workers_of_group(
    const session_choice& choice, const live_group& group, const std::string& verb,
    const std::function<std::vector<std::uint32_t>(const nlohmann::ordered_json& status)>& which);
/// order_group with "stop"; if `wait`, waits until their sockets are gone, and then says that they have stopped.
int stop_group(const session_choice& choice, const live_group& group, bool now, bool wait,
               std::optional<std::chrono::milliseconds> longest);

/// {"schema": "penstock.group-status/1", "group", "job", "ranks": [{"rank", "session", "status"}]}.
[[nodiscard]] nlohmann::ordered_json status_of_group(const live_group& group);
int show_group(const session_choice& choice, const live_group& group, bool check);
/// Of ranks, as rank 0 has seen them, and of each rank's workers and GPU owners.
int deaths_of_group(const session_choice& choice, const live_group& group);
/// The table of show_group again and again, with rates; `once`: one screen.
int top_of_group(const session_choice& choice, const live_group& group, std::chrono::milliseconds every,
                 bool once);

}  // namespace penstock::cli
