// Verbs that act on all ranks of a group at once. Used by the verbs for live sessions, which accept --group.
#pragma once

#include "tools/penstock/group/rank_names.hpp"
#include "tools/penstock/session_link.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <functional>
#include <optional>

namespace penstock::cli {

/// The group that a verb means: the one named by --group, or the only one if nothing is named.
struct meant_group {
  std::optional<live_group> group;  ///< empty: the verb means one session
  int refused = exit_ok;            ///< an exit code; the reason has been printed
};
[[nodiscard]] meant_group group_meant(const session_choice& choice);
/// Whether a rank is alive in any group that `--group NAME` could mean.
[[nodiscard]] bool group_is_there(const std::string& name);
/// The current state of the same group: ranks return with other sockets, and new ones appear. Empty if no
/// rank is alive.
[[nodiscard]] std::optional<live_group> again(const live_group& group);

/// {"group", "job", "ranks": []}: the beginning of these verbs' JSON.
[[nodiscard]] nlohmann::ordered_json head_of(const live_group& group);

/// A rank's answer to a request that all ranks get at once.
struct rank_answer {
  std::uint32_t rank = 0;
  std::string session;
  std::optional<nlohmann::ordered_json> result;
  std::string why_not;    ///< why there is no result
  int refused = exit_ok;  ///< the exit code of the same verb for this rank alone
};
[[nodiscard]] std::vector<rank_answer> ask_ranks(const live_group& group,
                                                 const nlohmann::ordered_json& question,
                                                 std::chrono::milliseconds deadline);

/// The exit code for a group: the one that all ranks have in common, or 7 if they differ.
class rank_outcomes {
 public:
  void add(int code) noexcept;
  [[nodiscard]] int code() const noexcept { return code_.value_or(exit_ok); }

 private:
  std::optional<int> code_;
};

/// Gives an order to all ranks: "paused 4 ranks of photos". Names the ranks that did not carry it out.
int order_group(const session_choice& choice, const live_group& group, const nlohmann::ordered_json& question,
                const std::string& told, const std::string& told_unchanged = {});
/// "restart" or "drain" for the workers that `which` selects from each rank's status. Reports per rank which
/// workers were changed and which were not. Exit code 4 if no rank has such a worker. `now`: they are killed.
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
