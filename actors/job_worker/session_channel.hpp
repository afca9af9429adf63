// The link to the session as a job worker uses it: read by the main thread, between two jobs or while there
// is none to run, without an io thread. Used by job_main.
#pragma once

#include "actors/protocol/wire.hpp"
#include "runtime/base/fd.hpp"

#include <functional>
#include <string>
#include <vector>

namespace penstock::job_worker {

/// One thread.
class session_channel {
 public:
  /// Uses a duplicate of `link` with a high number, so that a function that closes low descriptors does not
  /// close the link.
  explicit session_channel(int link);

  /// Returns when the kernel has the whole message. False: the session has closed the link.
  bool send(const protocol::from_worker& message);

  enum class wait : bool { no, for_one };
  enum class news : std::uint8_t {
    none,      ///< no message
    received,  ///< `take` was called at least once
    closed,    ///< the session has closed the link
    nonsense,  ///< invalid data: see what()
  };
  /// Calls `take` for each message available; waits for the first if `how` says so.
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
