// The link to the session as a job worker uses it: read by the main thread, between two jobs or while there is none to
// run, without an io thread. Used by job_main.
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
  /// Speaks over a duplicate of `link`, under a high number: a function that closes the descriptor, or everything from 3
  /// on to 9, closes nothing of ours.
  explicit session_channel(int link);

  /// All of it is with the kernel when this returns. False: the session is gone.
  bool send(const protocol::from_worker& message);

  enum class wait : bool { no, for_one };
  enum class news : std::uint8_t {
    none,      ///< nothing was there
    received,  ///< `take` was called
    closed,    ///< the session is gone
    nonsense,  ///< what() says which
  };
  /// Calls `take` for each message that is there; waits for the first if told to.
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
