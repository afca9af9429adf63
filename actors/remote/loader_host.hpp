// `penstock host`: the workers that a machine offers to a session which it joins, or to those that call it and share them
// (runtime/hosts/host_shares). One connection for each worker.
#pragma once

#include "actors/remote/host_door.hpp"
#include "actors/remote/host_connection.hpp"
#include "actors/remote/host_datasets.hpp"
#include "actors/remote/trouble_filter.hpp"
#include "runtime/hosts/host_shares.hpp"
#include "runtime/process/lifeline.hpp"

#include <penstock/config.hpp>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock::hosts {

struct host_settings {
  std::string session;  ///< where to join: HOST:PORT; or empty, and
  std::string listen;   ///< where to wait for sessions
  std::uint32_t workers = 1;
  std::string name;  ///< empty: this machine's
  std::string secret_file;
  bool insecure = false;
  string_map data{};  ///< where the session's folders are on this machine; it then reads nothing else
  std::string version;
  own_program program{};  ///< that runs jobs of pools
  std::vector<std::string> dataset_program{};  ///< the command of workers for custom datasets; empty: there are none
};

class loader_host {
 public:
  /// Refuses (errc::config) a bad address or secret, (errc::worker_program) a missing program, and (errc::io) an address where it cannot listen.
  static result<std::unique_ptr<loader_host>> open(const host_settings& settings);
  ~loader_host();
  loader_host(const loader_host&) = delete;
  loader_host& operator=(const loader_host&) = delete;

  /// Works until leave() is done or, after joining, the session is over. Refuses where the session refuses this host (errc::config), and
  /// where the session does not come back (errc::io).
  result<void> run();
  /// From any thread. Workers finish their leases first, unless `at_once`.
  void leave(bool at_once);

 private:
  /// A session that has called.
  struct guest {
    std::string name;
    bool announced = false;
  };
  explicit loader_host(const host_settings& settings);
  [[nodiscard]] connection_listener listener();
  void accept(accepted_call call);
  void serve_callers(std::unique_lock<std::mutex>& hold);
  void remove_ended(std::unique_lock<std::mutex>& hold);
  void share();
  std::string admit(const session_calls& call);
  void joined(const std::string& session, session_number number);
  void released(session_number session, const std::atomic<bool>& left);
  void sent_away();
  void trouble(const std::string& why, bool unknown);
  void ended(std::optional<failure> failed, session_number session);

  const host_settings settings_;
  process::lifeline lifeline_;
  host_facts facts_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::uint32_t ended_ = 0;
  bool leaves_ = false;
  host_shares shares_;        // of sessions that have called
  std::map<session_number, guest> guests_;  // those that have workers
  std::uint32_t calls_ = 0;   // so far
  std::uint64_t unknown_ = 0;
  std::uint32_t joined_ = 0;
  trouble_filter troubles_;
  std::optional<failure> failed_;
  std::unique_ptr<process::io_thread> io_;
  std::unique_ptr<host_datasets> datasets_;
  std::vector<std::unique_ptr<host_connection>> connections_;  // ended before io_
  std::unique_ptr<host_door> door_;                // null: joins
};

}  // namespace penstock::hosts
