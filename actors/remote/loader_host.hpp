// `penstock host`: the workers that a machine offers to a session, which it joins or which calls it. One connection for each; all
// share the listing of the dataset.
#pragma once

#include "actors/remote/host_door.hpp"
#include "actors/remote/host_connection.hpp"
#include "runtime/process/lifeline.hpp"

#include <penstock/config.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock::hosts {

struct host_settings {
  std::string session;  ///< where to join: HOST:PORT; or empty, and
  std::string listen;   ///< where to wait for sessions, one at a time
  std::uint32_t workers = 1;
  std::string name;  ///< empty: this machine's
  std::string secret_file;
  bool insecure = false;
  string_map data{};  ///< where the session's folders are on this machine; it then reads nothing else
  std::string version;
  own_program program{};  ///< that runs jobs of pools
};

class loader_host {
 public:
  /// Refuses (errc::config) a bad address or secret, and (errc::io) an address where it cannot listen.
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
  explicit loader_host(const host_settings& settings);
  result<std::shared_ptr<const ready_dataset>> prepare(const session_offer& offer);
  result<std::shared_ptr<host_program>> program_for(const session_offer& offer, bool forks);
  [[nodiscard]] connection_listener listener();
  void accept(accepted_call call);
  void remove_ended(std::unique_lock<std::mutex>& hold);
  std::string admit(const session_calls& call);
  void joined(const std::string& session);
  void released();
  void sent_away();
  void trouble(const std::string& why, bool unknown);
  void ended(std::optional<failure> failed);

  const host_settings settings_;
  process::lifeline lifeline_;
  host_facts facts_;
  std::mutex listing_;  // held while the dataset is listed
  session_offer listed_;  // as dataset_ was made
  std::shared_ptr<const ready_dataset> dataset_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::uint32_t ended_ = 0;
  bool leaves_ = false;
  session_calls serves_;      // the session that has called, while any
  std::uint32_t taken_ = 0;   // workers that it has
  std::uint32_t calls_ = 0;   // so far
  std::uint64_t unknown_ = 0;
  std::uint32_t joined_ = 0;
  std::string last_trouble_;
  std::optional<failure> failed_;
  std::unique_ptr<process::io_thread> io_;
  std::vector<std::unique_ptr<host_connection>> connections_;  // ended before io_
  std::unique_ptr<host_door> door_;                // null: joins
};

}  // namespace penstock::hosts
