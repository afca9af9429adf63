// Rank 0's listener and members on one io_context, over real sockets, for tests of the links of a group. Nothing here sleeps: run_until()
// runs the io_context until the condition holds, or fails the test at a deadline.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/net/links.hpp"
#include "runtime/net/sockets.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {

enum class link_kind : std::uint8_t { local, insecure, secret };

inline group::link_settings link_settings_for(link_kind kind, std::uint32_t world_size = 4) {
  static int names = 0;
  group::link_settings s;
  s.group = "job7/train";
  s.world_size = world_size;
  s.lost_after = std::chrono::seconds(10);
  if (kind == link_kind::local) {
    s.address = {group::group_address::kind::abstract_socket,
                 fmt::format("penstock-test/{}/{}", ::getpid(), ++names), 0};
  } else {
    s.address = {group::group_address::kind::tcp, "127.0.0.1", 0};
  }
  s.insecure = kind == link_kind::insecure;
  if (kind == link_kind::secret) s.secret = group::group_secret{"a secret of the whole group"};
  return s;
}

inline void run_until(boost::asio::io_context& io, const std::function<bool()>& done,
                      std::chrono::milliseconds at_most = std::chrono::seconds(20)) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  io.restart();
  while (!done()) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= std::chrono::seconds(0)) FAIL("the condition did not hold before the deadline");
    io.run_one_for(left);
    io.restart();
  }
}

/// Time that passed for this thread, except while it was runnable but the machine ran others.
class own_time {
 public:
  [[nodiscard]] std::chrono::milliseconds passed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin_ -
                                                                 (held_up() - held_up_));
  }

 private:
  static std::chrono::nanoseconds held_up() {
    std::ifstream schedule("/proc/thread-self/schedstat");
    std::int64_t ran = 0;
    std::int64_t waited = 0;
    schedule >> ran >> waited;
    return std::chrono::nanoseconds(waited);
  }
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds held_up_ = held_up();
};

/// Runs everything that is ready now.
inline void run_ready(boost::asio::io_context& io) {
  io.restart();
  io.poll();
}

struct test_coordinator {
  boost::asio::io_context& io;
  group::link_settings settings;
  std::unique_ptr<group::coordinator_listener> listener{};
  std::vector<std::pair<group::link_id, group::member_report>> reports{};
  std::map<group::link_id, std::string> closed{};
  std::set<group::link_id> ended{};
  std::vector<group::unknown_peer_news> news{};
  std::string where{};
  std::string why_not{};

  test_coordinator(boost::asio::io_context& its_io, group::link_settings its)
      : io(its_io), settings(std::move(its)) {
    listener = group::coordinator_listener::make(
                   io, settings,
                   {.report = [this](group::link_id id,
                                     group::member_report r) { reports.emplace_back(id, std::move(r)); },
                    .closed = [this](group::link_id id, const std::string& why) { closed[id] = why; },
                    .process_ended = [this](group::link_id id) { ended.insert(id); },
                    .listening = [this](const std::string& at) { where = at; },
                    .not_listening = [this](const std::string& why) { why_not = why; },
                    .unknown_peer = [this](const group::unknown_peer_news& one) { news.push_back(one); }})
                   .value();
  }
  test_coordinator(const test_coordinator&) = delete;
  test_coordinator& operator=(const test_coordinator&) = delete;

  /// The address, including its port.
  group::link_settings for_members() {
    run_until(io, [this] { return !where.empty(); });
    group::link_settings s = settings;
    if (s.address.what == group::group_address::kind::tcp)
      s.address.port = static_cast<std::uint16_t>(std::stoi(where.substr(where.rfind(':') + 1)));
    return s;
  }
  [[nodiscard]] std::uint64_t unknown_peers(group::unknown_peer_kind kind) const {
    return listener->unknown_peers()[static_cast<std::size_t>(kind)];
  }
};

struct test_member {
  std::unique_ptr<group::member_link> link{};
  std::vector<group::group_order> orders{};
  int connected = 0;
  int coordinator_ended = 0;
  std::vector<std::string> reasons{};

  test_member(boost::asio::io_context& io, group::link_settings settings) {
    link =
        group::member_link::make(
            io, std::move(settings),
            {.order = [this](group::group_order o) { orders.push_back(std::move(o)); },
             .connected = [this] { ++connected; },
             .disconnected = [this](const group::link_trouble& trouble) { reasons.push_back(trouble.why); },
             .coordinator_ended = [this] { ++coordinator_ended; }})
            .value();
  }
  test_member(const test_member&) = delete;
  test_member& operator=(const test_member&) = delete;
};

inline group::member_report numbered_report(std::uint64_t number, std::uint32_t rank = 0) {
  group::member_report r;
  r.card.rank = rank;
  r.number = number;
  return r;
}

inline group::group_order numbered_order(std::uint64_t number) {
  group::group_order o;
  o.number = number;
  return o;
}

/// A connection of a peer that is not a member.
inline unique_fd connect_raw(const group::link_settings& to) {
  unique_fd made = group::begin_connect(*group::address_without_asking(to.address)).value();
  return made;
}

inline void send_raw(const unique_fd& to, std::string_view bytes) {
  static_cast<void>(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

/// All bytes that have arrived; empty if the peer has closed the connection.
inline std::optional<std::string> receive_raw(const unique_fd& from) {
  std::string bytes(64 * 1024, '\0');
  const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN)) return std::nullopt;
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

}  // namespace penstock::testing
