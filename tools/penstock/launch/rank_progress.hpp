// The messages between a session under `penstock launch FILE` and its launcher: lines of JSON over an
// inherited socket (docs/decisions/0022). First the launcher sends the position at which the rank begins, and later a line for each process
// that it loses.
// Then the rank sends its current position: 50 ms after each change, and otherwise every 500 ms. Pure.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/report.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// The environment variable with the number of the channel's descriptor.
inline constexpr const char* launch_channel_variable = "PENSTOCK_LAUNCH_CHANNEL";

/// Longer lines are not ours. A state has at most 1 KiB, an epoch's entry about 400 bytes.
inline constexpr std::size_t progress_line_max = 256 * 1024;
inline constexpr std::size_t epochs_in_a_line = 256;

/// How a rank's group has ended, as reported by a rank that knows.
enum class group_end_word : std::uint8_t { none, finished, stopped };

struct rank_progress {
  std::uint64_t batches = 0;       ///< batches delivered by this process
  std::vector<std::byte> state{};  ///< Session::state(); empty: unchanged
  /// Entries of the report's "epochs" that are new or have changed; at most epochs_in_a_line.
  nlohmann::ordered_json epochs = nlohmann::ordered_json::array();
  group_end_word group = group_end_word::none;
  std::uint64_t beats =
      0;  ///< increases while the session's actors answer; a repeated number is no sign of life
};

/// The line with its line feed.
[[nodiscard]] std::string line_of(const rank_progress& progress);
/// Refuses (errc::protocol) anything else.
[[nodiscard]] result<rank_progress> parse_progress(std::string_view line);

/// The launcher's later lines: processes of ranks that it has lost.
[[nodiscard]] std::string line_of_lost(const std::vector<lost_process_report>& lost);
[[nodiscard]] result<std::vector<lost_process_report>> parse_lost(std::string_view line);

/// The launcher's first line.
struct rank_start {
  std::vector<std::byte> state{};  ///< the state to resume from; empty: the stream's beginning
  std::uint64_t delivered = 0;     ///< batches of this rank's earlier processes, up to the state
  bool alone = false;              ///< the group has finished, so there is none to join
  std::map<std::string, std::string> files{};  ///< the files that the launcher writes, by kind: session_options::files
  std::vector<lost_process_report> lost{};     ///< the processes lost so far, oldest first
};
[[nodiscard]] std::string line_of(const rank_start& start);
[[nodiscard]] result<rank_start> parse_start(std::string_view line);

/// What the launcher knows about one rank across all of its processes: where the next process resumes, and the epochs of killed ones. The
/// number of epochs bounds its size.
class rank_history {
 public:
  void heard(const rank_progress& progress);
  /// Call when the next process begins, at the last state: later epochs will be delivered again.
  void begin_again();
  /// Call when all ranks begin from this state of the group.
  void begin_from(std::vector<std::byte> state);

  /// Empty: the rank has sent no state.
  [[nodiscard]] const std::vector<std::byte>& state() const noexcept { return state_; }
  /// Batches delivered by all processes of the rank up to the state; call after begin_again().
  [[nodiscard]] std::uint64_t delivered() const;
  /// `report`: the last process's report (penstock.run/1). Its "epochs" then cover
  /// all processes; everything else is still about the last process.
  void complete(nlohmann::ordered_json& report) const;

 private:
  std::vector<std::byte> state_;
  std::vector<nlohmann::ordered_json> before_;  // epochs of earlier processes
  std::vector<nlohmann::ordered_json> now_;     // epochs of this process
};

}  // namespace penstock::cli
