// The rank's end of the channel to `penstock launch FILE`: where to begin, and where the session is, until it ends. Used by
// `run`.
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
  /// Takes the channel out of the environment, so that no child inherits its name.
  launcher_link();

  /// False: `penstock launch` has not started this process.
  [[nodiscard]] bool there() const noexcept { return static_cast<bool>(channel_); }
  /// Waits for the launcher's line, up to 10 s.
  [[nodiscard]] result<rank_start> where_to_begin();
  /// Waits while the launcher does not read, as for output. False: it is gone, and has sent us SIGHUP.
  bool send(const std::string& line);

 private:
  unique_fd channel_;
};

/// A thread that tells the launcher where the session is: every 50 ms if something has changed, else twice a second, as
/// a sign of life.
class position_teller {
 public:
  position_teller(launcher_link& launcher, const Session& session);
  /// Tells the last position; close the session first.
  ~position_teller();
  position_teller(const position_teller&) = delete;
  position_teller& operator=(const position_teller&) = delete;

 private:
  void run();
  void tell();

  launcher_link& launcher_;
  const Session& session_;
  std::vector<std::byte> told_;  // the last state
  std::size_t epochs_told_ = 0;  // complete ones
  group_end_word end_told_ = group_end_word::none;
  std::chrono::steady_clock::time_point told_at_{};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace penstock::cli
