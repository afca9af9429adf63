// Waits for the end of a session and of the processes that end with it: `run` writes its report after its
// session has ended, a launcher after its ranks have. Used by stop and wait, for a session and for groups.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "tools/penstock/control/slow_stop.hpp"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

inline constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 365);  // without --timeout
/// Parses --timeout; empty: no limit.
[[nodiscard]] result<std::optional<std::chrono::milliseconds>> parse_timeout(const std::string& text);

/// The request that ends a session. It names the process that runs this command.
[[nodiscard]] nlohmann::ordered_json request_to_stop(bool now);

class session_end {
 public:
  /// Construct before the request that ends the session: the
  /// process still exists then, so its pid has not been reused.
  explicit session_end(std::filesystem::path socket);

  /// Takes what the session says in its answer, or in the error of a refusal. Without this call, only the socket is watched.
  void says(const nlohmann::ordered_json& answer);
  /// The session's process; 0: unknown, because it is gone, or in another pid namespace.
  [[nodiscard]] int pid() const noexcept { return pid_; }
  /// The session's record. Empty: it writes none.
  [[nodiscard]] const std::filesystem::path& record() const noexcept { return record_; }
  /// Waits until the socket has no listener, the processes are gone and the record is complete. False: not within that time.
  [[nodiscard]] bool wait_until(steady_time until) const;
  /// Like wait_until(), but also prints what the end waits for: after a second,
  /// then about every 5 s, each thing once. `whose`: "rank 1: ".
  [[nodiscard]] bool wait_and_tell(steady_time until, bool quiet, const std::string& whose = {}) const;
  /// What still remains after wait_until() has returned false: "the session is still stopping".
  [[nodiscard]] std::string what_is_left() const;

 private:
  [[nodiscard]] bool socket_is_gone() const;
  [[nodiscard]] bool has_a_successor() const;
  [[nodiscard]] bool is_over(steady_time until) const;
  void wait_for_record(steady_time until) const;
  [[nodiscard]] std::vector<awaited_end> awaited(steady_time until) const;

  std::filesystem::path socket_;
  std::filesystem::path record_;
  int pid_ = 0;
  unique_fd process_;  // empty: the process is unknown, or need not be awaited
  unique_fd parent_;
};

}  // namespace penstock::cli
