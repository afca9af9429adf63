// A job worker's end of the link to the session: the main thread reads it between jobs, or while there is
// none, without an io thread. Used by job_main.
#pragma once

#include "actors/protocol/wire.hpp"
#include "runtime/base/fd.hpp"

#include <functional>
#include <string>
#include <vector>

namespace penstock::job_worker {

/// Used from one thread.
class session_channel {
 public:
  /// Uses a high-numbered duplicate of `link`, so that a function that closes low descriptors does not close
  /// the link.
  explicit session_channel(int link);

  /// Returns when the kernel has accepted the whole message. False: the session has closed the link.
  bool send(const protocol::from_worker& message);

  enum class wait : bool { no, for_one };
  enum class news : std::uint8_t {
    none,      ///< no message
    received,  ///< `take` was called at least once
    closed,    ///< the session has closed the link
    nonsense,  ///< invalid data: see what()
  };
  /// Calls `take` for each available message; waits for the first one if `how` says so.
  news receive(wait how, const std::function<void(protocol::to_worker&&)>& take);
  [[nodiscard]] const std::string& what() const noexcept { return nonsense_; }

 private:
  unique_fd socket_;
  protocol::frame_reader<protocol::to_worker> reader_;
  std::vector<char> outgoing_;
  std::vector<char> incoming_;
  std::string nonsense_;
};

}  // namespace penstock::job_worker
