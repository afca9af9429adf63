// Runs one lease: executes the rows of a slot's table in order and marks the current row in the flight
// recorder. A plain class, testable without a process; driven by job_main.
//
// The stages of a row:
//
//   revoked? next --- no ---> its argument --> recorder: loading --> begun --> function --> recorder: checking
//     --> check for writes beyond its result, and for CUDA
//     --> its result or error to the slot, or elsewhere --> row: finished | failed | too_large
//     --> restore what it changed about the process (process_settings)
//
// Rows finished before a death stay finished: the table records them without a message.
#pragma once

#include "actors/child/cuda_watch.hpp"
#include "actors/job_worker/argument_parcels.hpp"
#include "actors/job_worker/process_settings.hpp"
#include "actors/job_worker/result_room.hpp"
#include "actors/job_worker/work_notes.hpp"
#include "actors/protocol/messages.hpp"
#include "actors/protocol/parcels.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/home_process.hpp"

#include <penstock/job.hpp>

#include <functional>
#include <string>
#include <vector>

namespace penstock::job_worker {

struct named_function {
  std::string name;
  job_function run;
};

/// Everything must outlive the runner. Used from one thread.
struct job_context {
  const std::vector<named_function>& functions;  ///< a row names its function by the index in this list
  const arena::slots_view& slots;
  arena::flight_writer& flight;
  process_settings& settings;
  worker_ref me;
  int parcels = -1;                 ///< socket for arguments and results that do not fit a slot
  std::uint64_t elsewhere_max = 0;  ///< maximum bytes of a result outside its slot
  std::function<void(const protocol::jobs_done&)> report;
  /// Polled between rows, at most every 50 us. True: return after the current job.
  std::function<bool()> told_to_stop;
};

class job_runner {
 public:
  explicit job_runner(const job_context& context);

  enum class outcome : std::uint8_t {
    done,     ///< every row has ended
    stopped,  ///< told_to_stop() returned true; finished rows are reported
    unfit,    ///< this process must run no more jobs, for the reason in why(); finished rows are reported
  };
  /// Runs the rows that were not revoked. An exception from a function becomes its row's error. Fails with
  /// errc::protocol on a lease of a nonexistent slot, and with other codes when a new process is needed: a
  /// job has overwritten the table, or an argument does not arrive.
  result<outcome> run(const protocol::run_jobs& lease);
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// A file that the pool's program has published. Fails with errc::usage if it has not been sent, and like receive_parcel.
  result<unique_fd> shared_file(std::uint32_t number);

 private:
  struct ending;
  class current_lease;
  class described_room;
  enum class step : std::uint8_t { over, stopped };

  [[nodiscard]] static tl::unexpected<failure> damaged(const protocol::run_jobs& lease,
                                                       const std::string& how);
  result<step> run_row(current_lease& lease, std::uint32_t row);
  result<step> fetch_argument(current_lease& lease, std::uint32_t row, const arena::job_reading& job,
                              mapping& elsewhere, std::span<const std::byte>& argument);
  ending call(const arena::job_reading& job, std::span<const std::byte> argument, const result_room& room,
              JobCall::room& given_room);
  void look_after(const arena::job_reading& job, const result_room& room, ending& how);
  void settle_process();
  void hand_over(current_lease& lease, std::uint32_t row, ending how);
  result_room::place keep_error(result_room& room, ending& how) const;
  bool send_elsewhere(current_lease& lease, std::uint32_t row, const result_room::place& place);

  job_context context_;
  argument_parcels arguments_;
  work_notes notes_;
  child::cuda_watch cuda_{child::cuda_watch::sign::initialised};
  const home_process process_;
  std::uint64_t unsettled_ = 0;  // the last job, until the settings are restored; then 0
  std::string why_;
};

}  // namespace penstock::job_worker
