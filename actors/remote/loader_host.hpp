// `penstock host`: the workers that a machine offers to the sessions that it joins, or to those that connect. The sessions
// share the workers (runtime/hosts/host_shares). There is one connection per worker.
#pragma once

#include "actors/remote/host_door.hpp"
#include "actors/remote/host_connection.hpp"
#include "actors/remote/host_datasets.hpp"
#include "actors/remote/trouble_filter.hpp"
#include "runtime/hosts/host_shares.hpp"
#include "runtime/hosts/join_attempts.hpp"
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
  std::vector<std::string> sessions{};  ///< addresses to join (HOST:PORT); empty: listen
  std::string listen;                   ///< address at which to wait for sessions; used if `sessions` is empty
  std::uint32_t workers = 1;
  std::string name;  ///< empty: this machine's name
  std::string secret_file;
  bool insecure = false;
  string_map data{};  ///< where the sessions' folders are on this machine; if not empty, only those are read
  std::string version;
  own_program program{};  ///< the program that runs jobs of pools
  std::vector<std::string> dataset_program{};  ///< the command of workers for custom datasets; empty: such datasets are refused
};

class loader_host {
 public:
  /// Refuses (errc::config) a bad address or secret, (errc::worker_program) a missing program, and (errc::io) an address where it cannot listen.
  static result<std::unique_ptr<loader_host>> open(const host_settings& settings);
  ~loader_host();
  loader_host(const loader_host&) = delete;
  loader_host& operator=(const loader_host&) = delete;

  /// Works until leave() has taken effect or, if the host joins sessions, until all of them are over. Then fails if a
  /// session has refused this host (errc::config) or has not returned (errc::io).
  result<void> run();
  /// Thread-safe. Workers finish their leases first, unless `at_once`.
  void leave(bool at_once);

 private:
  /// A session that has workers.
  struct guest {
    std::string name;
    bool announced = false;
  };
  /// A session that this host joins. Its number is its position in the list, from 1.
  struct target {
    group::group_address address;
    join_attempts attempts{};
  };
  explicit loader_host(const host_settings& settings);
  [[nodiscard]] connection_listener listener();
  void accept(accepted_call call);
  [[nodiscard]] bool is_done() const;
  void serve(std::unique_lock<std::mutex>& hold);
  void remove_ended(std::unique_lock<std::mutex>& hold);
  void join_more();
  void share();
  void hand_over(session_number session);
  [[nodiscard]] target& target_of(session_number session) { return targets_[session - 1]; }
  [[nodiscard]] bool serves_others(session_number session) const;
  std::string admit(session_number session, const std::string& name);
  void has_joined(session_number session, const std::string& name, nanoseconds wait);
  void released(session_number session, const std::atomic<bool>& left);
  void sent_away(session_number session);
  void trouble(session_number session, const std::string& why);
  void ended(const connection_end& end);
  void caller_ended(const connection_end& end);
  void joined_ended(const connection_end& end);
  void give_up(session_number session, failure why);

  const host_settings settings_;
  process::lifeline lifeline_;
  host_facts facts_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  bool leaves_ = false;
  bool joined_ = false;  // a session has given a place: more connections may be made
  host_shares shares_;
  std::vector<target> targets_;             // empty: sessions connect to this host
  std::map<session_number, guest> guests_;
  std::uint32_t connections_made_ = 0;
  std::uint64_t unknown_ = 0;
  std::map<session_number, trouble_filter> troubles_;  // 0: for all sessions that connect
  std::optional<failure> failed_;
  std::unique_ptr<process::io_thread> io_;
  std::unique_ptr<host_datasets> datasets_;
  std::vector<std::unique_ptr<host_connection>> connections_;  // must end before io_
  std::unique_ptr<host_door> door_;                // null: this host joins sessions
};

}  // namespace penstock::hosts
