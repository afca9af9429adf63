// One worker process on a loader host: its process and link, its slots, its flight page. The session is on the other side of
// a host_stream; to the worker, this host is the session. Used on host_connection's thread; the process is managed on the io
// thread.
#pragma once

#include "actors/remote/dataset_program.hpp"
#include "actors/remote/host_program.hpp"
#include "actors/remote/hosted_jobs.hpp"
#include "actors/remote/packing.hpp"
#include "actors/remote/process_meter.hpp"
#include "actors/remote/host_stream.hpp"
#include "actors/supervisor/linked_child.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/base/wake_event.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/process/io_thread.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock::hosts {

/// What a host has made ready for a session.
struct ready_dataset {
  std::string config;  ///< protocol::config_as_bytes, with the paths of this machine
  std::shared_ptr<const prepared_dataset> dataset{};  ///< set only for a stream
  nanoseconds lost_after{0};  ///< from [loader.hosts], like the next two
  nanoseconds drain{0};
  nanoseconds wait{0};
  compress_rule compress = compress_rule::none;
  std::shared_ptr<host_program> program{};  ///< set only for a pool
  std::vector<std::string> command{};       ///< set only for a custom dataset; empty: penstock-worker
  std::vector<wire_fact> facts{};           ///< about that program
  std::optional<program_file> file{};       ///< the custom dataset's program file; no other may run
};

struct hosted_worker_deps {
  process::io_thread* io = nullptr;
  int lifeline = -1;
  std::shared_ptr<const ready_dataset> dataset;
  bool digests = false;
  std::uint32_t number = 0;                ///< number of the connection on this host
  std::shared_ptr<const wake_event> wake;  ///< raised when there is something to report
};

class hosted_worker {
 public:
  /// Starts the process. Refuses (errc::system, errc::out_of_memory).
  static result<std::unique_ptr<hosted_worker>> start(const hosted_worker_deps& deps);
  /// Kills the process if it is still running. Does not wait.
  ~hosted_worker();
  hosted_worker(const hosted_worker&) = delete;
  hosted_worker& operator=(const hosted_worker&) = delete;

  /// This host's end of the worker's link; -1 if the worker has not started yet, or has ended.
  [[nodiscard]] int link() const noexcept { return link_.get(); }
  [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty(); }
  /// Whether the worker has leases; its flight page then changes often.
  [[nodiscard]] bool is_busy() const noexcept { return leases_.value_or(0) > 0 || (jobs_ && jobs_->is_busy()); }
  /// Whether the worker is ready, and has nothing to do.
  [[nodiscard]] bool is_idle() const noexcept { return leases_ && !is_busy(); }
  /// Whether the worker's end has been reported.
  [[nodiscard]] bool over() const noexcept { return over_; }

  /// Handles frames from the session for the worker.
  result<void> hear_session(std::string_view frames);
  /// Reports everything that has happened since the last call, with the bytes of loaded batches. Refuses (errc::config) if every
  /// worker of this host would end in the same way; the session then loses the host instead of failing.
  result<void> work(host_stream& to);
  result<void> send_again(host_stream& to, const send_again& order);
  /// In a pool.
  result<void> take_job(host_stream& from, const job_follows& order);
  [[nodiscard]] hosted_jobs* jobs() noexcept { return jobs_.get(); }
  void signal(int number);
  /// Processor time of the process so far.
  [[nodiscard]] nanoseconds cpu() { return meter_.cpu(); }

 private:
  /// The process on the io thread, and what that thread reports.
  struct shared_part;
  struct loaded {
    std::uint32_t generation = 0;
    std::uint32_t rows = 0;
    std::string report;
  };
  struct session_visitor;

  hosted_worker(const hosted_worker_deps& deps, arena::arena memory, arena::flight_recorders flights);
  void launch();
  result<void> assign(const arena::geometry& shape);
  result<void> hear_io(host_stream& to);
  result<void> say_unfit(host_stream& to, const std::string& why) const;
  result<void> hear_link(host_stream& to);
  result<void> take(host_stream& to, protocol::from_worker& message);
  result<void> send_batch(host_stream& to, std::uint32_t slot, const loaded& what) const;
  void show_flight(host_stream& to, bool at_any_rate);
  void send_to_worker();

  const hosted_worker_deps deps_;
  arena::arena memory_;
  arena::flight_recorders flights_;
  std::shared_ptr<shared_part> shared_;
  unique_fd link_;
  protocol::frame_reader<protocol::to_worker> from_session_;
  protocol::frame_reader<protocol::from_worker> from_worker_;
  std::string unsent_;  // bytes for the worker that its socket has not accepted yet
  std::optional<arena::slots_view> slots_;
  batch_layout layout_;
  std::unique_ptr<packer> packer_;  // null: batches are not compressed
  std::map<std::uint32_t, loaded> loaded_;  // by slot; kept because the session may ask for them again
  std::optional<std::uint32_t> leases_;  // nullopt: the worker is not ready yet
  std::unique_ptr<hosted_jobs> jobs_;  // in a pool
  process_meter meter_;
  steady_time shown_at_{};
  std::string gave_up_;  // the reason in the worker's message worker_gives_up
  bool over_ = false;
};

}  // namespace penstock::hosts
