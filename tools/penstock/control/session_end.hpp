// Waits for the end of a session, and of what ends with it: `run` writes its report when its session is over, a launcher
// when its ranks are. Used by stop and wait, for a session and for groups.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>

namespace penstock::cli {

class session_end {
 public:
  /// Make it before the request that ends the session: then its process is there, and its pid is not another one's.
  explicit session_end(std::filesystem::path socket);

  /// What the session says in its answer, or in the error of a refusal. Without it only the socket is waited for.
  void says(const nlohmann::ordered_json& answer);
  /// Waits until nobody listens on the socket and the processes are gone. False: not until then.
  [[nodiscard]] bool wait_until(steady_time until) const;
  /// What is still there after wait_until() has returned false: "the session is still stopping".
  [[nodiscard]] std::string what_is_left() const;

 private:
  [[nodiscard]] bool socket_is_gone() const;

  std::filesystem::path socket_;
  unique_fd process_;  // none: not known, or not waited for
  unique_fd parent_;
};

}  // namespace penstock::cli
