// What a session under `penstock launch FILE` and its launcher tell each other over an inherited socket, as lines of JSON
// (docs/decisions/0022). First the launcher says where the rank begins; then the rank says where it is, at least every
// 100 ms. Pure.
#pragma once

#include "runtime/base/result.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// Names the descriptor in a rank's environment.
inline constexpr const char* launch_channel_variable = "PENSTOCK_LAUNCH_CHANNEL";

/// Longer lines are no message of ours. A state has at most 1 KiB, an epoch's entry some 400 bytes.
inline constexpr std::size_t progress_line_max = 256 * 1024;
inline constexpr std::size_t epochs_in_a_line = 256;

/// How a rank's group has ended, by the word of a rank that knows.
enum class group_end_word : std::uint8_t { none, finished, stopped };

struct rank_progress {
  std::uint64_t batches = 0;       ///< delivered by this process
  std::vector<std::byte> state{};  ///< Session::state(); empty: as before
  /// Entries of the report's "epochs": those that are new or have changed; at most epochs_in_a_line.
  nlohmann::ordered_json epochs = nlohmann::ordered_json::array();
  group_end_word group = group_end_word::none;
  std::uint64_t beats =
      0;  ///< increases while the session's actors answer; the same number again is no sign of life
};

/// With the line's end.
[[nodiscard]] std::string line_of(const rank_progress& progress);
/// Refuses (errc::protocol) anything else.
[[nodiscard]] result<rank_progress> parse_progress(std::string_view line);

/// The launcher's only line.
struct rank_start {
  std::vector<std::byte> state{};  ///< to resume from; empty: the stream's beginning
  std::uint64_t delivered = 0;     ///< batches of this rank's earlier processes, up to the state
  bool alone = false;              ///< the group has finished: there is none to join
};
[[nodiscard]] std::string line_of(const rank_start& start);
[[nodiscard]] result<rank_start> parse_start(std::string_view line);

/// What the launcher knows of one rank over all of its processes: where the next one resumes, and the epochs of those
/// that were killed. Bounded by the number of epochs.
class rank_history {
 public:
  void heard(const rank_progress& progress);
  /// The next process begins where the last state says; epochs after that one will be delivered again.
  void begin_again();
  /// All ranks begin from this state, that of the group.
  void begin_from(std::vector<std::byte> state);

  /// Empty: the rank has sent none.
  [[nodiscard]] const std::vector<std::byte>& state() const noexcept { return state_; }
  /// Batches of all its processes up to the state; call after begin_again().
  [[nodiscard]] std::uint64_t delivered() const;
  /// `report`: the last process's (penstock.run/1). Its "epochs" become those of all processes; everything else stays
  /// that of the last one.
  void complete(nlohmann::ordered_json& report) const;

 private:
  std::vector<std::byte> state_;
  std::vector<nlohmann::ordered_json> before_;  // of earlier processes, by epoch
  std::vector<nlohmann::ordered_json> now_;     // of this one
};

}  // namespace penstock::cli
