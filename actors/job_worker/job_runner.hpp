// The work on one lease: the rows of a slot's table are run one after the other, and the flight recorder knows which. A
// plain class without a process of its own; job_main feeds it.
//
// A row's way:
//
//   revoked? next --- no ---> its argument --> recorder: loading --> begun --> function --> recorder: checking
//     --> what it wrote beyond its result, whether it brought CUDA
//     --> its result or error to the slot, or elsewhere --> row: finished | failed | too_large
//     --> what it changed about the process is set back (process_settings)
//
// What was finished before a death stays finished: the table says so, without a message.
#pragma once

#include "actors/child/cuda_watch.hpp"
#include "actors/job_worker/argument_parcels.hpp"
#include "actors/job_worker/process_settings.hpp"
#include "actors/job_worker/result_room.hpp"
#include "actors/protocol/messages.hpp"
#include "actors/protocol/parcels.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"

#include <penstock/job.hpp>

#include <functional>
#include <string>
#include <vector>

namespace penstock::job_worker {

struct named_function {
  std::string name;
  job_function run;
};

/// Everything outlives the runner; one thread.
struct job_context {
  const std::vector<named_function>& functions;  ///< a row names one by its index
  const arena::slots_view& slots;
  arena::flight_writer& flight;
  process_settings& settings;
  worker_ref me;
  int parcels = -1;                 ///< socket for what does not fit a slot
  std::uint64_t elsewhere_max = 0;  ///< bytes that one result may take outside of its slot
  std::function<void(const protocol::jobs_done&)> report;
  /// Looked at between rows, at most every 50 us: finish the job at hand and return.
  std::function<bool()> told_to_stop;
};

class job_runner {
 public:
  explicit job_runner(const job_context& context);

  enum class outcome : std::uint8_t {
    done,     ///< every row is over
    stopped,  ///< told to stop; the rows that are over were reported
    unfit,  ///< this process must run no more jobs: why() says what happened. The rows that are over were reported.
  };
  /// Runs the rows that were not revoked. Whatever a function does to its own job stays there: what it throws is its
  /// row's error. Refuses (errc::protocol) a lease of a slot that does not exist; with other codes what only another
  /// process can go on from: a table that some job has written over, an argument that does not come.
  result<outcome> run(const protocol::run_jobs& lease);
  [[nodiscard]] const std::string& why() const noexcept { return why_; }

 private:
  struct ending;
  class lease_in_hand;
  enum class step : std::uint8_t { over, stopped };

  [[nodiscard]] static tl::unexpected<failure> damaged(const protocol::run_jobs& lease,
                                                       const std::string& how);
  result<step> run_row(lease_in_hand& lease, std::uint32_t row);
  result<step> fetch_argument(lease_in_hand& lease, std::uint32_t row, const arena::job_reading& job,
                              mapping& elsewhere, std::span<const std::byte>& argument);
  ending call(const arena::job_reading& job, std::span<const std::byte> argument, result_room& room);
  void look_after(const arena::job_reading& job, const result_room& room, ending& how);
  void settle_process();
  void hand_over(lease_in_hand& lease, std::uint32_t row, ending how);
  result_room::place keep_error(result_room& room, ending& how) const;
  bool send_elsewhere(lease_in_hand& lease, std::uint32_t row, const result_room::place& place);
  std::string_view name_for_people(const arena::job_reading& job);

  job_context context_;
  argument_parcels arguments_;
  child::cuda_watch cuda_;
  pid_t process_;
  std::uint64_t unsettled_ = 0;  // the job after which the process was not set back yet; 0: none
  std::string name_;             // reused: no allocation on the way of a job
  std::string why_;
};

}  // namespace penstock::job_worker
