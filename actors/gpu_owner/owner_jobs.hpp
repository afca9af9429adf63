// The main thread's work in the owner's process of a pool: takes job results as they reach the device, runs
// their programs, and sends the answers. Used by owner_body.
#pragma once

#include "actors/gpu_owner/hand_over.hpp"
#include "actors/gpu_owner/job_programs.hpp"
#include "actors/protocol/link.hpp"
#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "runtime/arena/flight_recorder.hpp"

#include <functional>

namespace penstock::gpu_owner {

/// The owner's counts since the previous message.
struct upload_counts {
  std::uint64_t uploads = 0;
  std::uint64_t bytes = 0;
  bool pinned = false;
};

/// Converts the session's message to upload orders for the owner actor.
[[nodiscard]] upload_batches orders_of(protocol::upload_jobs order);

class owner_jobs {
 public:
  struct deps {
    hand_over* consumer = nullptr;
    protocol::owners_session_link* link = nullptr;
    arena::flight_writer* flight = nullptr;        ///< may be null
    std::function<void(std::uint32_t)> give_back;  ///< returns a buffer
    std::function<upload_counts()> counts;
  };

  owner_jobs(deps deps, job_programs& programs) : deps_(std::move(deps)), programs_(programs) {}

  /// Runs until the session stops it. Fails when the device is lost.
  result<void> run();

 private:
  result<void> answer(ready_batch job);
  void send();

  deps deps_;
  job_programs& programs_;
  std::vector<protocol::wire_job_answer> answers_;
  std::size_t answer_bytes_ = 0;
};

}  // namespace penstock::gpu_owner
