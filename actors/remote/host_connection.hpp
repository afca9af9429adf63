// A host's end of a connection: a thread that keeps one connection to a session, and runs the worker that the session orders. On a
// host that joins, it connects again whenever the connection is lost. On one that listens, it serves one call of a session.
//
//   connecting -- hello, dataset --> working -- the connection is lost --> connecting
//                                       +-- the session is over, or the host leaves and its worker has ended --> (end)
#pragma once

#include "actors/remote/cpu_account.hpp"
#include "actors/remote/hosted_worker.hpp"
#include "actors/remote/host_stream.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/group/group_address.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace penstock::hosts {

/// What all connections of a host have in common.
struct host_facts {
  process::io_thread* io = nullptr;
  group::group_address address;             ///< of the session, or where the host listens
  std::shared_ptr<const group::tls_context> tls{};  ///< null: not encrypted
  int lifeline = -1;
  std::string version;  ///< of penstock
  std::string name;
  std::uint64_t process = 0;  ///< a random number
  std::uint32_t workers = 1;  ///< of the whole host
  std::uint32_t cores = 1;    ///< that they may use
  string_map program_facts{};  ///< versions of the program that runs jobs
};

/// What a session asks of a host.
struct session_offer {
  std::string config;
  std::string program;  ///< that runs jobs; empty: a stream's workers
  std::string code;
  std::uint64_t marks_bytes = 0;
  std::uint64_t nonce = 0;
  bool encrypted = false;

  bool operator==(const session_offer&) const = default;
};

/// What a connection tells its host, on the connection's thread.
struct connection_listener {
  /// Lists the dataset of a session, or takes its code, once for all connections. May take minutes.
  std::function<result<std::shared_ptr<const ready_dataset>>(const session_offer&)> prepare;
  /// A session has called. Returns why it must wait; empty: it may have a worker.
  std::function<std::string(const session_calls& call)> admit;
  /// The worker of an admitted session is free again. `left`: it was told to leave.
  std::function<void(std::uint64_t session, const std::atomic<bool>& left)> released;
  /// How many workers an admitted session may have.
  std::function<std::uint32_t(std::uint64_t session)> offered;
  /// How long the session's consumer has waited so far.
  std::function<void(std::uint64_t session, nanoseconds in_all)> waited;
  std::function<void(const std::string& session, std::uint64_t number)> joined;
  /// The session wants the host to leave.
  std::function<void()> sent_away;
  /// Why there is no connection. `unknown`: no session had been admitted.
  std::function<void(const std::string& why, bool unknown)> trouble;
  /// The last call. `failed`: why this host cannot continue. None: the host left, or the session is over or, on a host that
  /// listens, lost.
  std::function<void(std::optional<failure> failed, std::uint64_t session)> ended;
};

/// A call that a host which listens has accepted.
struct accepted_call {
  unique_fd socket;
  std::string from;  ///< its address, for texts
};

class host_connection {
 public:
  /// `number`: of the host's connections, from 0. `call`: only on a host that listens.
  host_connection(const host_facts& facts, std::uint32_t number, connection_listener listener,
            std::optional<accepted_call> call = std::nullopt);
  /// Ends it at once, and waits for the thread.
  ~host_connection();
  host_connection(const host_connection&) = delete;
  host_connection& operator=(const host_connection&) = delete;

  /// Its worker finishes its leases first, unless `at_once`.
  void leave(bool at_once);
  /// Whether a session has proved the secret and has got a worker of this host.
  [[nodiscard]] bool admitted() const noexcept { return session_ != 0; }
  /// The number of that session's process; 0: none has been admitted.
  [[nodiscard]] std::uint64_t session() const noexcept { return session_; }
  /// Whether its worker has work, or is starting.
  [[nodiscard]] bool is_busy() const noexcept { return busy_; }
  [[nodiscard]] bool is_leaving() const noexcept { return leaves_; }
  [[nodiscard]] bool over() const noexcept { return over_; }
  /// Ends the connection.
  void cut();
  [[nodiscard]] bool was_cut() const noexcept { return cut_; }

 private:
  enum class way { again, over };
  struct session_visitor;
  class reachable_while;

  void run();
  void keep_joining();
  void answer();
  void end(std::optional<failure> failed);
  void wake() const;
  void clear_wake() const;
  void sleep(nanoseconds at_most) const;
  result<way> attend();
  result<way> attend_call();
  result<void> let_in(host_stream& to, bool& probe);
  result<void> join(host_stream& to);
  result<way> work(host_stream& to);
  result<way> turn(host_stream& to);
  [[nodiscard]] bool has_drained();
  result<void> hear_session(host_stream& to);

  const host_facts facts_;
  const std::uint32_t number_;
  const connection_listener listener_;
  const std::shared_ptr<const unique_fd> wake_;
  std::atomic<bool> leaves_ = false;
  std::atomic<bool> at_once_ = false;
  std::atomic<std::uint64_t> session_ = 0;
  std::atomic<bool> busy_ = false;
  std::atomic<bool> over_ = false;
  std::atomic<bool> cut_ = false;
  std::mutex mutex_;
  host_stream* stream_ = nullptr;  // guarded by mutex_, as the next one
  bool placed_ = false;            // the session has given it a place

  // On the thread:
  std::optional<accepted_call> call_;
  std::shared_ptr<const ready_dataset> dataset_;
  std::unique_ptr<hosted_worker> worker_;
  cpu_account cpu_;
  bool working_ = false;  // the session that called has given it a place
  bool digests_ = false;
  std::uint32_t offered_ = 0;  // as told to the session
  bool leaving_told_ = false;
  bool session_over_ = false;
  std::optional<patient_deadline> leaving_;  // `drain`, since the host began to leave
  std::optional<steady_time> lost_since_;  // a session that it had joined
  std::thread thread_;
};

}  // namespace penstock::hosts
