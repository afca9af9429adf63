// Which group a verb means, and a request to all its ranks at once. Used by the verbs for groups.
#pragma once

#include "tools/penstock/group/rank_names.hpp"
#include "tools/penstock/session_link.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

/// The group that a verb means: the one named by --group, or the only one if nothing is named.
struct meant_group {
  std::optional<live_group> group;  ///< empty: the verb means one session
  int refused = exit_ok;            ///< exit code of an error that has been printed
};
[[nodiscard]] meant_group group_meant(const session_choice& choice);
/// Whether a rank is alive in any group that `--group NAME` could mean.
[[nodiscard]] bool group_is_there(const std::string& name);
/// The current state of the same group: a restarted rank has a different socket, and new ranks may have appeared. Empty if
/// no rank is alive.
[[nodiscard]] std::optional<live_group> again(const live_group& group);

/// {"group", "job", "ranks": []}: the beginning of these verbs' JSON.
[[nodiscard]] nlohmann::ordered_json head_of(const live_group& group);

/// A rank's answer to a request that all ranks get at once.
struct rank_answer {
  std::uint32_t rank = 0;
  std::string session;
  std::optional<nlohmann::ordered_json> result;
  std::string why_not;    ///< why there is no result
  int refused = exit_ok;  ///< the exit code that the verb would have for this rank alone
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

/// {"rank", "session"}, and "error" if the rank has no result.
[[nodiscard]] nlohmann::ordered_json row_of(const rank_answer& answer);
/// Names the ranks without a result; returns the exit code.
int tell_silent(const session_choice& choice, const std::vector<rank_answer>& answers);

}  // namespace penstock::cli
