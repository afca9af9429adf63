// One worker without a session: the calling thread starts it, sends it requests and kills it. Used by doctor, by session and loader host
// to have a worker program describe its dataset, and by plan and replay, which also ask it for names. Deadlines do not count time while
// the calling thread did not run.
#pragma once

#include "actors/protocol/wire.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/process/output_file.hpp"
#include "runtime/process/spawner.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::supervisor {

struct lone_worker_request {
  std::vector<std::string> command;      ///< program, resolved by find_program, and arguments
  std::vector<std::string> environment;  ///< the complete environment
  std::vector<int> indexes{};            ///< descriptors of the datasets' indexes; -1: none
  nanoseconds deadline{0};               ///< for the worker's start and for each answer, except that of load()
  const std::atomic<bool>* given_up = nullptr;  ///< when true, every wait ends (errc::stopped). Must outlive the worker
};

class lone_worker {
 public:
  /// Starts the worker and waits until it runs. Refuses (errc::worker_program, errc::system,
  /// errc::timed_out).
  static result<std::unique_ptr<lone_worker>> start(const lone_worker_request& request);
  /// Kills the worker.
  ~lone_worker();
  lone_worker(const lone_worker&) = delete;
  lone_worker& operator=(const lone_worker&) = delete;

  /// Waits for the worker's hello; open() does so, too. Refuses a program that is not a worker, or has another protocol
  /// version.
  result<void> greet();
  /// Has the worker open the dataset. Refuses (errc::dataset) with the worker's reason if the worker refuses.
  result<dataset_description> open(const config& settings);
  /// Has the worker set up the dataset, with one slot for that many samples.
  result<void> set_up(const dataset_description& dataset, std::uint32_t samples);
  /// Call after set_up(). Returns what the dataset calls these samples.
  result<std::vector<std::string>> name(std::span<const std::uint64_t> samples);
  /// Returns the answer to a lease. Refuses with errc::timed_out, or with errc::worker_program and how the worker ended.
  result<protocol::from_worker> load(const protocol::load_batch& lease, nanoseconds deadline);

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid; }
  [[nodiscard]] const std::string& program() const noexcept { return program_; }

 private:
  lone_worker(arena::arena memory, arena::flight_recorders flights, process::output_file output, const lone_worker_request& request)
      : deadline_(request.deadline), given_up_(request.given_up), memory_(std::move(memory)), flights_(std::move(flights)), output_(std::move(output)) {}
  result<void> launch(const lone_worker_request& request);
  result<protocol::from_worker> hear(nanoseconds deadline, std::string_view doing);
  result<void> read(std::string_view doing);
  result<void> say(const protocol::to_worker& message, std::string_view doing);
  [[nodiscard]] bool given_up() const noexcept { return given_up_ != nullptr && *given_up_; }
  [[nodiscard]] std::string how_it_ended(std::string_view doing);

  const nanoseconds deadline_;
  const std::atomic<bool>* const given_up_;
  process::lifeline lifeline_;
  arena::arena memory_;
  arena::flight_recorders flights_;
  process::output_file output_;
  unique_fd socket_;
  process::spawner starter_;  // its thread must live as long as the child, as in a session
  process::child child_;
  std::string program_;
  bool greeted_ = false;
  protocol::frame_reader<protocol::from_worker> reader_;
  std::vector<protocol::from_worker> heard_;
};

}  // namespace penstock::supervisor
