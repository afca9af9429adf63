// The loader hosts of one session (rules H1-H10, H16): which ones are present, silent, lost or leaving, which place each remote worker
// has, and which workers rest. Pure: events and the time come in, commands come out of advance(). Driven by actors/remote/host_hub.
//
// Each connection has one worker at a time, or none while it rests because an operator wants fewer workers of
// that host. The connections of one `penstock host` process together form a host.
//
//   joined --> placed -- the host leaves --> leaving -- its worker has ended --> gone
//                 |                             |
//                 +-- closed, silent for lost_after, three bad transfers in a row --> lost
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace penstock::hosts {

using connection_id = std::uint64_t;

struct book_settings {
  std::uint32_t first_place = 0;
  std::uint32_t places = 0;
  nanoseconds lost_after{5'000'000'000};
  std::uint32_t bad_transfers_max = 3;     ///< a host with this many bad transfers in a row is lost
  nanoseconds late_look{1'000'000'000};  ///< if two calls to advance() are further apart, the time between them does not count as silence
};

/// What a connection says about its host.
struct host_card {
  std::string name;
  std::string address;
  std::int32_t pid = 0;
  std::uint64_t process = 0;  ///< a random number that distinguishes processes of the same name
  std::string version{};      ///< the host's version of penstock
  std::uint32_t cores = 0;    ///< cores that its workers may use
  std::uint32_t workers = 1;  ///< workers that it offers this session
  std::uint32_t workers_of_all = 1;  ///< workers that it offers to all its sessions
};

/// Why a transfer was not used.
enum class bad_transfer : std::uint8_t {
  damaged,     ///< the bytes changed on the way
  wrong_size,  ///< the batch did not fit its lease
  late         ///< no lease waited for it any more; does not count towards bad_transfers_max
};

// ---- commands ---------------------------------------------------------------------------------------------

/// A process may start behind this connection.
struct occupy_place {
  connection_id connection = 0;
  std::uint32_t place = 0;
};
/// The worker behind this connection finishes its leases. No worker follows until the place is occupied again.
struct rest_place {
  connection_id connection = 0;
  std::uint32_t place = 0;
};
/// No process may start behind this connection any more. `lost`: the process that ran is gone as well.
struct vacate_place {
  connection_id connection = 0;
  std::uint32_t place = 0;
  bool lost = false;
};
/// Close the connection, because it is over.
struct close_connection {
  connection_id connection = 0;
  std::string why;
};
struct host_came {
  host_card card;
};
enum class loss_cause : std::uint8_t { closed, silent, damaged };
struct host_went {
  host_card card;
  std::string why;  ///< why the host was lost; empty: it left
  std::optional<loss_cause> lost{};  ///< empty: the host left
};

using book_command = std::variant<occupy_place, rest_place, vacate_place, close_connection, host_came, host_went>;

struct host_view {
  host_card card;
  bool leaving = false;
  std::vector<std::uint32_t> places;
  double samples_per_second = 0;
  double bytes_per_second = 0;
  nanoseconds round_trip{0};
  steady_time joined{};
  std::uint32_t wanted = 0;  ///< how many of the workers that it offers may run
  std::uint32_t limit = 0;   ///< how many may run on each host of this name
};

class host_book {
 public:
  explicit host_book(const book_settings& settings) : settings_(settings) {}

  /// A host has connected. Returns false if there is no place for the connection.
  [[nodiscard]] bool joined(connection_id connection, const host_card& card, steady_time now);
  /// `when`: the last time that anything arrived.
  void heard(connection_id connection, steady_time when);
  void answered(connection_id connection, nanoseconds round_trip);
  /// The host now offers this many workers.
  void offers(connection_id connection, std::uint32_t workers);
  /// The worker behind this connection finishes its batches, and no worker follows it.
  void leaving(connection_id connection);
  /// The connection's worker, if there was one, has ended, and none will follow.
  void emptied(connection_id connection);
  void closed(connection_id connection, const std::string& why);
  void received(connection_id connection, std::uint64_t samples, std::uint64_t bytes, steady_time now);
  /// A batch arrived damaged, late or in the wrong size.
  void spoilt(connection_id connection, bad_transfer kind, const std::string& how);
  /// How many workers the host of this name has. If several hosts have the name, the smallest number; empty if none has.
  [[nodiscard]] std::optional<std::uint32_t> workers_of(const std::string& name) const;
  /// From now on, hosts of this name run at most this many workers each, even those that join later (rule H16).
  void scale(const std::string& name, std::uint32_t workers);

  [[nodiscard]] std::vector<book_command> advance(steady_time now);
  /// When to call advance() again at the latest.
  [[nodiscard]] steady_time next_deadline() const;

  [[nodiscard]] std::optional<connection_id> connection_at(std::uint32_t place) const;
  /// Requires that the connection has joined and is not gone.
  [[nodiscard]] std::uint32_t place_of(connection_id connection) const { return connections_.at(connection).place; }
  [[nodiscard]] std::vector<host_view> hosts(steady_time now) const;

 private:
  struct connection {
    std::uint64_t process = 0;
    std::uint32_t place = 0;
    steady_time heard{};
    bool leaving = false;
    bool rests = true;  // true until its host has been balanced
  };
  struct amount {
    steady_time when{};
    std::uint64_t samples = 0;
    std::uint64_t bytes = 0;
  };
  struct host {
    host_card card;
    std::set<connection_id> connections;
    std::uint32_t spoilt = 0;  // bad transfers in a row
    nanoseconds round_trip{0};
    std::deque<amount> received;  // amounts of the last 10 s, in steps of a second
    steady_time joined{};
  };
  /// The operator's order for hosts of one name, kept even after these hosts are gone.
  struct order_for_name {
    std::optional<std::uint32_t> wanted{};
    std::uint64_t used = 0;
  };

  void balance(const host& of);
  void lose(connection_id id, loss_cause cause, const std::string& why);
  void end(connection_id id, std::optional<loss_cause> lost, const std::string& why);
  [[nodiscard]] host* host_of(connection_id id);
  [[nodiscard]] std::uint32_t wanted_of(const host& of) const;
  [[nodiscard]] order_for_name& remember(const std::string& name);

  book_settings settings_;
  std::map<connection_id, connection> connections_;
  std::map<std::uint32_t, connection_id> places_;
  std::map<std::uint64_t, host> hosts_;  // by process
  std::map<std::string, order_for_name> names_;  // at most names_max
  std::uint64_t names_used_ = 0;
  std::vector<book_command> outbox_;
  std::optional<steady_time> looked_;
};

}  // namespace penstock::hosts
