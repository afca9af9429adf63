// The host's end of a connection: a thread that serves one connection to a session and runs the worker that the session orders.
// Either side may have connected. When a connection fails, loader_host decides whether to make another one.
//
//   connecting, or called -- hello, dataset --> working -- the session is over, or the connection is lost, or
//                                                          the host leaves and its worker has ended --> (end)
#pragma once

#include "actors/remote/cpu_account.hpp"
#include "actors/remote/departure.hpp"
#include "actors/remote/hosted_worker.hpp"
#include "actors/remote/host_stream.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/hosts/host_shares.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

namespace penstock::hosts {

/// What all connections of a host have in common.
struct host_facts {
  process::io_thread* io = nullptr;
  std::shared_ptr<const group::tls_context> tls{};  ///< null: not encrypted
  int lifeline = -1;
  std::string version;  ///< penstock's
  std::string name;
  std::uint64_t process = 0;  ///< a random number
  std::uint32_t workers = 1;  ///< workers of this host, for all sessions
  std::uint32_t cores = 1;    ///< cores that these workers may use
  string_map program_facts{};  ///< versions of the program that runs jobs
};

/// What a session requests from a host.
struct session_offer {
  std::string config;
  std::string program;  ///< kind of program that runs jobs; empty: a stream's workers
  std::string code;
  std::uint64_t marks_bytes = 0;
  std::uint64_t nonce = 0;
  bool encrypted = false;

  bool operator==(const session_offer&) const = default;
};

/// How a connection has ended.
struct connection_end {
  enum class how : std::uint8_t {
    left,          ///< the host ended the connection, or the peer was only a probe
    session_over,
    busy,          ///< the session must wait for a worker
    lost,          ///< the connection failed, or could not be made
    unfit          ///< the session refuses this host, or no worker can work here
  };
  how ending = how::left;
  session_number session = 0;  ///< 0: a peer called but was not admitted
  bool placed = false;         ///< whether the session had given the connection a place
  failure why{};               ///< set for busy, lost and unfit
};

/// What a connection reports to its host, on the connection's thread.
struct connection_listener {
  /// Lists a session's dataset, or prepares its code, once for all connections. Can take minutes.
  std::function<result<std::shared_ptr<const ready_dataset>>(const session_offer&)> prepare;
  /// Called when a session of this name has connected, or has accepted our connection. Returns why it must wait; empty:
  /// it gets a worker.
  std::function<std::string(session_number session, const std::string& name)> admit;
  /// Called when the worker of an admitted session is free again. `left`: it was asked to leave.
  std::function<void(session_number session, const std::atomic<bool>& left)> released;
  /// Returns how many workers an admitted session may have.
  std::function<std::uint32_t(session_number session)> offered;
  /// Called with how long the session's consumer has waited so far, and how many workers it wants at most.
  std::function<void(session_number session, const ping& said)> measured;
  /// Called when the session has given the connection a place. `wait`: how long to try to reconnect if the session is
  /// lost.
  std::function<void(session_number session, const std::string& name, nanoseconds wait)> joined;
  /// Called when the session wants the host to leave.
  std::function<void(session_number session)> sent_away;
  /// Called last, when the connection has ended.
  std::function<void(const connection_end& end)> ended;
};

/// A session has connected.
struct accepted_call {
  unique_fd socket;
  std::string from;  ///< the session's address, for messages
};
/// A session to connect to.
struct session_to_join {
  group::group_address address;
  session_number number = 0;  ///< not 0
};

class host_connection {
 public:
  /// `number`: counts the host's connections, from 0.
  host_connection(const host_facts& facts, std::uint32_t number, connection_listener listener,
                  std::variant<accepted_call, session_to_join> to);
  /// Ends the connection at once, and waits for the thread.
  ~host_connection();
  host_connection(const host_connection&) = delete;
  host_connection& operator=(const host_connection&) = delete;

  /// Ends the connection after its worker has finished its leases, or at once.
  void leave(bool at_once);
  /// Whether a session has proved that it knows the secret, and was given a worker of this host.
  [[nodiscard]] bool admitted() const noexcept { return session_ != 0; }
  /// The number of that session; 0: none has been admitted.
  [[nodiscard]] session_number session() const noexcept { return session_; }
  /// The number of the session that this connection joins; 0 if the session has connected to this host.
  [[nodiscard]] session_number joins() const noexcept {
    const auto* const session = std::get_if<session_to_join>(&to_);
    return session == nullptr ? 0 : session->number;
  }
  /// Whether the connection's worker has work, or is starting.
  [[nodiscard]] bool is_busy() const noexcept { return worker_is_ == worker_state::busy; }
  [[nodiscard]] bool has_worker() const noexcept { return worker_is_ != worker_state::none; }
  [[nodiscard]] bool is_leaving() const noexcept { return departure_.ordered(); }
  [[nodiscard]] bool over() const noexcept { return over_; }
  /// Ends the connection.
  void cut();
  [[nodiscard]] bool was_cut() const noexcept { return cut_; }

 private:
  struct session_visitor;
  class reachable_while;

  enum class way { again, over };
  enum class worker_state : std::uint8_t { none, idle, busy };
  void run();
  void end(const result<void>& done);
  result<void> attend(const session_to_join& to);
  result<void> attend(accepted_call& call);
  result<void> let_in(host_stream& to, bool& probe);
  result<void> admit(host_stream& to, session_number session, const std::string& name);
  result<void> join(host_stream& to);
  result<void> work(host_stream& to);
  result<way> turn(host_stream& to);
  [[nodiscard]] bool has_drained();
  result<void> hear_session(host_stream& to);

  const host_facts facts_;
  const std::uint32_t number_;
  const connection_listener listener_;
  const std::shared_ptr<const wake_event> wake_ = std::make_shared<const wake_event>();
  departure departure_;
  std::atomic<session_number> session_ = 0;
  std::atomic<worker_state> worker_is_ = worker_state::none;
  std::atomic<bool> over_ = false;
  std::atomic<bool> cut_ = false;
  std::mutex mutex_;
  host_stream* stream_ = nullptr;  // guarded by mutex_, like the next member
  bool placed_ = false;            // whether the session has given this connection a place

  // Used on the connection's thread:
  std::variant<accepted_call, session_to_join> to_;  // joins() may read it from any thread, because the part that it reads never changes
  std::shared_ptr<const ready_dataset> dataset_;
  std::unique_ptr<hosted_worker> worker_;
  cpu_account cpu_;
  bool digests_ = false;
  std::uint32_t offered_ = 0;  // as last reported to the session
  /// Facts that decide how the connection's end is reported.
  struct {
    bool had_place = false;
    bool busy_here = false;  // the session must wait for a worker
    bool session_over = false;
  } outcome_;
  std::thread thread_;
};

}  // namespace penstock::hosts
