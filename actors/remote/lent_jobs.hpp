// The jobs of one remote worker, at the session's end of its connection. To the pool this is the worker: it marks rows of its slots as
// begun and ended (runtime/arena/job_slot). The host gets one job at a time, and only after its row has begun, so a job whose row
// is still waiting has not been sent anywhere (rule H13). Used by remote_connection's thread.
//
//   resting -- files offered, and answered --> (a row begins) -- job_follows --> running -- job_over --> resting
#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/protocol/wire.hpp"
#include "actors/remote/received_file.hpp"
#include "actors/remote/host_stream.hpp"
#include "actors/remote/shared_program.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/arena/job_slot.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace penstock::hosts {

class lent_jobs {
 public:
  /// `tell`: sends a frame to the pool. A transfer that moves nothing for `silence_max` ends the connection. `parcels`: set to
  /// the pool's end of the parcel socket. Refuses (errc::system).
  static result<std::unique_ptr<lent_jobs>> make(std::shared_ptr<const shared_program> program, nanoseconds silence_max,
                                                 std::function<void(std::string_view)> tell, unique_fd& parcels);

  /// Handles a message from the pool to its worker, and may change it for the host. False: do not send it to the host.
  /// Refuses (errc::system).
  result<bool> hears(protocol::to_worker& message, int arena);
  /// Sends the work that the host can do now. Refuses as host_stream does, and (errc::protocol) a damaged
  /// slot.
  result<void> advance(host_stream& to);
  /// Receives the result. Returns what is wrong with its bytes, which are then sent again. Empty: the result is in place, or
  /// sending it again would not help.
  result<std::string> land(host_stream& from, const job_over& news, bool digests);
  result<void> answered(host_stream& to, const file_answer& news);

  /// The number of jobs leased to this worker that have not ended.
  [[nodiscard]] std::uint64_t held() const;

  /// A descriptor that becomes readable when a large argument arrives; -1: nothing waits for one.
  [[nodiscard]] int waits_on() const noexcept { return waits_ ? parcels_.get() : -1; }
  /// Replaces the host's row in the worker's flight page by the row in the session's slot. Records the job's mark.
  void translate(arena::flight_reading& page, std::int64_t mark) const;

 private:
  lent_jobs(std::shared_ptr<const shared_program> program, unique_fd parcels, nanoseconds silence_max,
            std::function<void(std::string_view)> tell)
      : program_(std::move(program)), parcels_(std::move(parcels)), silence_max_(silence_max), tell_(std::move(tell)) {}
  struct in_hand {
    arena::job_reading order;
    std::span<const std::byte> argument;
    mapping elsewhere;  // the argument, if it is not in the slot
  };
  /// The slot of the first lease in the queue.
  [[nodiscard]] arena::job_slot slot() const { return arena::job_slot(slots_->slot(leases_.front().slot)); }
  result<void> begin_next();
  /// Gets the job's argument. False if the argument is still on its way, or no longer needed.
  result<bool> fetch_argument(in_hand& job);
  void row_over();
  void offer_files(host_stream& to);
  result<std::span<std::byte>> make_room(std::uint64_t bytes);
  result<void> end(arena::row_state how, std::uint64_t bytes, nanoseconds busy);
  result<void> fail(arena::row_state how, const std::string& why);

  const std::shared_ptr<const shared_program> program_;
  const unique_fd parcels_;
  const nanoseconds silence_max_;
  const std::function<void(std::string_view)> tell_;
  std::optional<arena::slots_view> slots_;
  std::uint64_t elsewhere_max_ = 0;
  std::deque<protocol::run_jobs> leases_;  // at most one for each slot
  std::optional<std::uint64_t> next_result_;  // offset in the slot of the first lease; empty: that slot has not been read yet
  std::uint32_t row_ = 0;                     // current row of the first lease
  std::optional<in_hand> job_;
  std::optional<received_file> room_;  // memory for the current result, if that is not in the slot
  std::set<std::uint64_t> offered_;    // numbers of files
  std::uint32_t unanswered_ = 0;
  bool waits_ = false;     // waits for an argument
  bool stopping_ = false;  // the pool has asked the worker to stop
  bool told_ = false;      // the host has been told to stop
};

}  // namespace penstock::hosts
