// The session's end of a connection: a thread that serves one connection of a loader host. It receives the bytes of batches
// into the slots of the connection's place, relays everything else between the host's worker and the session, and mirrors the
// worker's flight page. host_hub sends orders and gets events; both arrive in order.
//
// To the session, the connection is a worker: the messages of the worker's link pass unchanged through a socket pair, except
// that a batch's report is held back until the batch's bytes have arrived intact.
#pragma once

#include "actors/protocol/burst_queue.hpp"
#include "actors/protocol/link.hpp"
#include "actors/remote/connection_meter.hpp"
#include "actors/remote/flight_mirror.hpp"
#include "actors/remote/landing_slots.hpp"
#include "actors/remote/lent_jobs.hpp"
#include "actors/remote/packing.hpp"
#include "actors/remote/host_security.hpp"
#include "actors/remote/host_stream.hpp"
#include "actors/remote/shared_program.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/base/wake_event.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/hosts/host_book.hpp"

#include <penstock/dataset.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

namespace penstock::hosts {

/// What all connections of a session have in common.
struct connection_deps {
  std::string session;
  std::string version;  ///< penstock's
  std::string config;   ///< protocol::config_as_bytes
  dataset_description dataset;                      ///< set only for a stream
  string_map program_facts{};                       ///< about the worker program; set only for a custom dataset
  std::shared_ptr<const shared_program> program{};  ///< null: a stream
  std::uint64_t process = 0;                             ///< a random number
  std::shared_ptr<const group::tls_context> tls{};           ///< for hosts that join; null: not encrypted
  std::shared_ptr<const group::tls_context> tls_of_calls{};  ///< for hosts that the session calls
  compress_rule compress = compress_rule::none;
  bool digests = false;
  nanoseconds lost_after{5'000'000'000};
  int arena = -1;
  std::shared_ptr<arena::flight_recorders> flights;
  std::function<nanoseconds()> waited{};  ///< how long the consumer has waited so far. Any thread
};

// ---- orders -------------------------------------------------------------------------------------------------

struct give_place {
  std::uint32_t place = 0;
};
struct turn_away {
  std::string why;
};
struct start_worker {};
struct signal_worker {
  int number = 0;
};
/// An operator wants the host to leave.
struct ask_to_leave {};
/// The session is over.
struct say_goodbye {};
using connection_order = std::variant<give_place, turn_away, start_worker, signal_worker, ask_to_leave, say_goodbye>;

// ---- news ---------------------------------------------------------------------------------------------------

/// The peer has proved that it knows the secret, and has the same version. Sent again when the host offers a
/// different number of workers.
struct host_known {
  host_card card;
  std::uint32_t workers = 1;  ///< workers that the host offers
};
/// The host has the same dataset, and waits for give_place or turn_away.
struct host_agreed {
  host_card card;
};
struct worker_runs {
  pid_t pid = -1;
  std::shared_ptr<unique_fd> link;     ///< the session's end
  std::shared_ptr<unique_fd> parcels;  ///< the session's end; in a stream empty
};
struct worker_refused {
  failure why;
};
struct worker_wrote {
  std::string line;
};
struct worker_over {
  process::exit_report report;
  std::string last_output;
};
struct host_goes {};
struct batch_received {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};
struct batch_spoilt {
  std::string how;
  bad_transfer kind = bad_transfer::damaged;
};
struct ping_answered {
  nanoseconds round_trip{0};
  nanoseconds cpu{0};  ///< pong::cpu_ns
};
/// The last event. `refused`: the session turned the host away. `host`: its name; empty: unknown.
struct connection_closed {
  std::string why;
  bool refused = false;
  std::string host{};
};
using connection_news = std::variant<host_known, host_agreed, worker_runs, worker_refused, worker_wrote, worker_over, host_goes,
                               batch_received, batch_spoilt, ping_answered, connection_closed>;

class remote_connection {
 public:
  /// `tell` is called on the connection's thread.
  remote_connection(unique_fd socket, connected_by who, std::string address, std::shared_ptr<const connection_deps> deps,
              std::function<void(connection_news)> tell);
  /// Ends the connection, and waits for the thread.
  ~remote_connection();
  remote_connection(const remote_connection&) = delete;
  remote_connection& operator=(const remote_connection&) = delete;

  void order(connection_order what);
  void close_soon() noexcept { stream_.close_soon(); }
  [[nodiscard]] steady_time last_heard() const noexcept { return stream_.last_heard(); }
  [[nodiscard]] connection_figures figures() const { return meter_.figures(); }
  /// How many workers of its host may run for this session (rule H16). The next ping tells the host this
  /// number.
  void wants(std::uint32_t workers) noexcept { wanted_ = workers; }

 private:
  struct from_host_visitor;
  struct order_visitor;

  void run();
  result<void> admit();
  result<void> answer_probe();
  result<void> refuse_host(std::string why, bool for_good = true);
  result<void> work();
  result<void> take_orders();
  result<void> say(to_host message) {
    stream_.put(message);
    return {};
  }
  result<void> hear_host();
  result<void> hear_session();
  result<void> land(const batch_follows& batch);
  struct arrival {
    std::string wrong;  // why the batch must not be used; empty if it is good
    bad_transfer kind = bad_transfer::damaged;
  };
  result<arrival> receive(const batch_follows& batch);
  result<void> note(const protocol::to_worker& message);
  result<void> pass_on(std::string_view frame);
  result<void> land_job(const job_over& job);
  [[nodiscard]] std::string difference(const from_host& found) const;
  void stand_in();
  void look_at_clock();
  void show_life();
  [[nodiscard]] nanoseconds ping_every() const;
  [[nodiscard]] ping next_ping() const;

  const connected_by who_;
  const std::string address_;
  const std::shared_ptr<const connection_deps> deps_;
  const std::function<void(connection_news)> tell_;
  host_stream stream_;
  wake_event wake_;
  protocol::burst_queue<connection_order> orders_;
  std::atomic<std::uint32_t> wanted_ = remote_workers_max;
  connection_meter meter_;

  // Used on the connection's thread:
  unique_fd link_;  // while a worker runs: its end of the link to the session
  protocol::frame_reader<protocol::to_worker> from_session_;
  std::optional<std::uint32_t> place_;
  landing_slots landing_;
  std::unique_ptr<packer> packer_;  // null: batches are not compressed
  std::unique_ptr<lent_jobs> jobs_;  // only in a pool, which does not use packer_ and landing_
  flight_mirror mirror_;
  struct {
    std::uint64_t number = 0;
    steady_time sent{};
    std::optional<steady_time> measured_from;  // reset when `number` is answered
  } pings_;
  bool starting_ = false;
  connection_closed end_;  // what is known about the end so far
  std::thread thread_;
};

}  // namespace penstock::hosts
