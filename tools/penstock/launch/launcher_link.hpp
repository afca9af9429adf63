// The rank's end of the channel to `penstock launch FILE`: receives where to begin, and reports where the
// session is until it ends. Used by `run`.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "tools/penstock/launch/rank_progress.hpp"

#include <penstock/session.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace penstock::cli {

class launcher_link {
 public:
  /// Removes the channel from the environment, so that no child inherits its name.
  launcher_link();

  /// False: `penstock launch` did not start this process.
  [[nodiscard]] bool there() const noexcept { return static_cast<bool>(channel_); }
  /// Waits for the launcher's line, up to 10 s.
  [[nodiscard]] result<rank_start> where_to_begin();
  /// Sends a line; waits while the launcher does not read, as for output. False: the launcher is gone and has
  /// sent us SIGHUP.
  bool send(const std::string& line);
  /// Processes of ranks that the launcher has lost since the previous call. Does not wait.
  [[nodiscard]] std::vector<lost_process_report> lost();

 private:
  unique_fd channel_;
  std::string received_;  // lines that have not been read, and the beginning of the next one
};

/// A thread that reports the session's position to the launcher: every 50 ms if it has changed, otherwise
/// several times per `lost_after`. Its lines are signs of life only if the session's actors have answered
/// since the previous one (actors/session/pulse.hpp). Before the actors exist and after their end, every line
/// is one.
class position_teller {
 public:
  /// What to report: the position, or only that the process is alive (for a session that ends before it begins).
  enum class tells : std::uint8_t { position, life };
  position_teller(launcher_link& launcher, const Session& session, std::chrono::nanoseconds lost_after,
                  tells what = tells::position);
  /// Reports the last position; close the session first.
  ~position_teller();
  position_teller(const position_teller&) = delete;
  position_teller& operator=(const position_teller&) = delete;

 private:
  void run();
  void tell();
  [[nodiscard]] std::uint64_t beats();

  launcher_link& launcher_;
  const Session& session_;
  const tells what_;
  const std::chrono::nanoseconds line_every_;
  std::uint64_t beats_of_actors_ = 0;
  std::uint64_t lines_without_actors_ = 0;
  std::vector<std::byte> told_;  // the last state reported
  std::size_t epochs_told_ = 0;  // number of complete epochs reported
  group_end_word end_told_ = group_end_word::none;
  std::chrono::steady_clock::time_point told_at_{};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace penstock::cli
