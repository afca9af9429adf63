// The session's side of its loader hosts: listens, calls hosts that listen, keeps their connections, starts remote workers for
// worker_processes, and carries out operators' orders (host_orders.cpp). hosts::host_book decides; this translates. Lives on the
// session's io thread.
//
//   host -- connection --> remote_connection (a thread each) -- news --> host_hub -- host_place_joined, _left --> supervisor
//                                      <-- orders --                 ^
//                                                                    +-- start, signal -- worker_processes
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/remote/host_caller.hpp"
#include "actors/remote/remote_connection.hpp"
#include "actors/supervisor/remote_workers.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/hosts/host_records.hpp"
#include "runtime/process/io_thread.hpp"

#include <penstock/event.hpp>
#include <penstock/report.hpp>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::hosts {

/// The hosts as the status shows them. Thread-safe.
class host_board {
 public:
  void listens_at(std::string where);
  /// Counts the death of a worker on a host that is connected.
  void worker_died(const death_report& death);
  void calls(std::vector<std::string> addresses);
  /// Records that the session has had no worker since `since`, and waits at most `limit` for a host. The wait ends when
  /// shows() gets a host.
  void waits(steady_time since, nanoseconds limit);
  /// `resident`: the memory of the hosts' workers in bytes, by place.
  void shows(std::vector<host_status> hosts, const host_records& records, std::map<std::uint32_t, std::uint64_t> resident);
  void add_to(session_status& status) const;

 private:
  using host_key = std::pair<std::string, std::int32_t>;  // name, pid
  mutable std::mutex mutex_;
  std::string where_;
  std::vector<std::string> called_;
  std::vector<host_status> hosts_;
  std::map<host_key, std::uint64_t> deaths_;
  host_records records_;
  std::map<std::uint32_t, std::uint64_t> resident_;
  std::optional<steady_time> waits_since_;
  nanoseconds wait_limit_{0};
};

/// What happened to a host, for the session's events.
using host_listener = std::function<void(event_kind kind, const std::string& host, const std::string& text)>;

struct hub_settings {
  std::optional<group::group_address> address{};  ///< where hosts join
  std::vector<group::group_address> called{};     ///< hosts that listen
  book_settings book;
  nanoseconds wait{0};
  bool has_local_workers = true;  ///< whether there are local workers at the start
};

class host_hub final : public supervisor::remote_workers, public std::enable_shared_from_this<host_hub> {
 public:
  host_hub(process::io_thread& io, const hub_settings& settings, connection_deps deps, std::shared_ptr<host_board> board,
           host_listener listener);

  /// Listens and calls from now on. Refuses (errc::io). Call before the first start.
  result<void> open(supervisor::supervisor_actor supervisor);
  /// Asks the hosts of this name to finish the work that they have begun, and to leave. Returns false if there are none. On the
  /// io thread.
  [[nodiscard]] bool send_away(const std::string& name);
  /// Makes each host of this name run that many of its workers (rule H16). Refuses (errc::usage) if there is no such host, or
  /// if one has fewer workers. On the io thread.
  result<void> scale(const std::string& name, std::uint32_t workers);
  /// The times of the worker in a place; empty if there is none. On the io thread.
  [[nodiscard]] std::optional<remote_times> times_of(std::uint32_t worker) const;
  /// Tells all hosts that the session is over, and waits for their connections. Not on the io thread.
  void shut_down();

  [[nodiscard]] bool has(std::uint32_t worker) const override;
  void start(worker_ref who, process::child_callbacks calls,
             std::function<void(result<supervisor::linked_child>)> then) override;
  void signal(worker_ref who, int number) override;

 private:
  struct entry {
    std::unique_ptr<remote_connection> connection;
    std::shared_ptr<host_caller> caller{};  // set if the session called the host
    bool known = false;  // whether the host has proved that it knows the secret
    host_card card{};    // set once the host has joined
    bool cut = false;
    // The connection's worker, from its start to its end:
    std::optional<worker_ref> who{};
    process::child_callbacks calls{};
    std::function<void(result<supervisor::linked_child>)> then{};  // set while the worker starts
  };
  struct news_visitor;
  struct command_visitor;

  [[nodiscard]] const entry* entry_at(std::uint32_t place) const;
  [[nodiscard]] entry* entry_at(std::uint32_t place) {
    return const_cast<entry*>(std::as_const(*this).entry_at(place));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
  void accept_more();
  void accept_later();
  void accepted(unique_fd socket);
  void call(const group::group_address& address);
  void connected(unique_fd socket, connected_by who, const std::shared_ptr<host_caller>& caller);
  result<void> listen();
  void hear(connection_id id, connection_news news);
  void closed(connection_id id, const connection_closed& news);
  void tell_refusal(const entry& of, const connection_closed& news);
  void carry_out();
  void look_later();
  void look();
  void say_that_it_waits() const;

  process::io_thread& io_;
  const hub_settings settings_;
  const std::shared_ptr<const connection_deps> deps_;
  const std::shared_ptr<host_board> board_;
  const host_listener listener_;
  supervisor::supervisor_actor supervisor_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer accept_timer_;
  host_book book_;
  host_records records_;
  std::vector<std::shared_ptr<host_caller>> callers_;
  std::map<connection_id, entry> connections_;
  connection_id last_connection_ = 0;
  std::uint64_t unknown_ = 0;  // number of peers that were refused
  std::set<std::string> refusals_told_;
  bool looks_ = false;
  std::optional<std::promise<void>> all_closed_;  // set while shut_down() waits
};

}  // namespace penstock::hosts
