// The links of a group: coordinator_listener is rank 0's side, where the ranks connect; member_link is a
// rank's side, including rank 0's own session. They carry the two messages of group_messages.hpp and
// nothing else. Used by actors/group and runtime/program_group.
//
//   member_link                                        coordinator_listener
//     connect ------------------------------------------>  same host: the kernel says that it is the same user
//     TLS 1.3, pre-shared secret (between hosts) <------>  unknown peers end here
//     hello: protocol version, name of the group ------->
//            <-------------------------------- hello       it is a link now, and has a number
//     report ------------------------------------------->  callbacks.report
//     callbacks.order <---------------------------- order
//
// Between hosts every link is encrypted, and both sides prove that they have the secret. Links
// on one host use an abstract socket: the kernel identifies the peer's user, and a secret that
// every process of that user can read would prove nothing more. OpenSSL is then not loaded.
//
// Threads: every call and every callback is on the io_context's thread. Nothing blocks: names are resolved on
// a separate thread, and every wait has a deadline. A callback may call send() and stop(), and may destroy
// the object. No callback follows stop() or destruction. Destroy it before the io_context.
//
// Memory. Each message replaces an unsent earlier one of the same direction: at most two frames wait in each
// direction of a link. A frame is at most frame_bytes_max() (group_wire.hpp). At most `pending_max`
// connections are unauthenticated, each with at most `handshake_bytes_max` bytes; a new one replaces the
// oldest. There are at most four links for each rank; a further link replaces the one that
// has been silent longest.
//
// Time. A member that has heard nothing for half of lost_after connects again, so a rank survives a
// connection that the network has dropped. Both sides send a message every beat, at least eight times per
// lost_after. The member keeps the silent link until the new one is open, and still sends its reports over
// it: if the coordinator's process was only suspended, it finds the reports there, and the last report says
// why the rank left. Likewise the coordinator keeps a silent link for twice lost_after, so a rank that was
// suspended finds its last order there. Time during which this process did not run does not count as silence.
// Nor does the silence of a process on the same host that a debugger holds.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/group/group_messages.hpp"
#include "runtime/group/link_news.hpp"
#include "runtime/net/group_secret.hpp"

#include <boost/asio/io_context.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::group {

struct link_settings {
  group_address address;
  /// The group's name, made from its job and session. Equal for all ranks. At most group_name_max bytes (group_wire.hpp).
  std::string group;
  /// Used if the address is on the network.
  std::optional<group_secret> secret{};
  bool insecure = false;  ///< allows a network address without a secret
  std::uint32_t world_size = 1;
  nanoseconds lost_after{10'000'000'000};
  std::uint32_t protocol = group_protocol;  ///< differs only in tests
  /// How long a connection may take to become a link, and how long to wait for an address lookup.
  nanoseconds handshake_deadline{5'000'000'000};
  /// Size limit of the bytes that the user may attach to a report or an order. 0: no attachments.
  std::size_t attachment_bytes_max = 0;
  /// After this much silence a member opens another link next to the current one.
  [[nodiscard]] nanoseconds silence_max() const noexcept { return lost_after / 2; }
  /// After this much silence the coordinator closes a link. By then the
  /// rank is lost, and the order that says so has been sent over the link.
  [[nodiscard]] nanoseconds dead_after() const noexcept { return 2 * lost_after; }
};

/// Refuses what both make() functions refuse, and opens OpenSSL if it is needed. Reads files: call it first
/// on a thread that may block, and then make() on the I/O thread.
result<void> prepare_links(const link_settings& settings);

class coordinator_listener {
 public:
  struct callbacks {
    std::function<void(link_id, member_report)> report;
    /// Receives the attachment of the report that was passed on just before.
    std::function<void(link_id, std::string bytes)> attachment{};
    /// The connection ended, which does not prove that the process has.
    std::function<void(link_id, const std::string& why)> closed;
    /// Follows closed(): the process, on this host, has certainly ended.
    std::function<void(link_id)> process_ended{};
    /// The link is silent because a debugger holds its process, on this host. Repeated while that lasts.
    std::function<void(link_id)> held{};
    /// Members can connect from now on. `where`: the address with its actual port.
    std::function<void(const std::string& where)> listening{};
    /// The address cannot be bound yet, for example because an earlier process still has it. The listener
    /// keeps trying. Called when the reason changes.
    std::function<void(const std::string& why)> not_listening{};
    std::function<void(const unknown_peer_news&)> unknown_peer{};
  };

  static constexpr std::size_t pending_max = 64;
  static constexpr std::size_t handshake_bytes_max = 4096;

  /// Starts to listen. Refuses (errc::config) a network address without a secret, inconsistent settings, and
  /// a secret without OpenSSL.
  static result<std::unique_ptr<coordinator_listener>> make(boost::asio::io_context& io,
                                                            link_settings settings, callbacks calls);
  ~coordinator_listener();
  coordinator_listener(const coordinator_listener&) = delete;
  coordinator_listener& operator=(const coordinator_listener&) = delete;

  /// Sends an order, which replaces an unsent one. Ignored if the link is closed. Texts in it are cut (group_wire.hpp).
  void send(link_id to, const group_order& order, std::string_view attachment = {});
  /// Closes every link and stops listening.
  void stop();

  /// The number of unknown peers of each kind since the start.
  [[nodiscard]] std::array<std::uint64_t, static_cast<std::size_t>(unknown_peer_kind::count)> unknown_peers()
      const;
  [[nodiscard]] std::size_t links() const;
  [[nodiscard]] std::size_t pending() const;

 private:
  class body;
  explicit coordinator_listener(std::shared_ptr<body> its) : body_(std::move(its)) {}
  std::shared_ptr<body> body_;
};

class member_link {
 public:
  struct callbacks {
    std::function<void(group_order)> order;
    /// Receives the attachment of the order that was passed on just before.
    std::function<void(std::string bytes)> attachment{};
    std::function<void()> connected{};
    /// The connection ended or is silent, or none could be made; another attempt follows. Also called
    /// whenever the reason changes.
    std::function<void(const link_trouble&)> disconnected{};
    /// Follows disconnected(): the coordinator's process, on this host, has certainly ended.
    std::function<void()> coordinator_ended{};
    /// The link is silent because a debugger holds the coordinator's process, on this host. Repeated while
    /// that lasts.
    std::function<void()> coordinator_held{};
  };

  /// Starts to connect. Refuses what coordinator_listener::make refuses.
  static result<std::unique_ptr<member_link>> make(boost::asio::io_context& io, link_settings settings,
                                                   callbacks calls);
  ~member_link();
  member_link(const member_link&) = delete;
  member_link& operator=(const member_link&) = delete;

  /// Sends a report, which replaces an unsent one. Without a connection, the report waits for one. Refuses
  /// (errc::config) a report whose card is too large (group_wire.hpp), or whose attachment exceeds attachment_bytes_max.
  result<void> send(const member_report& report, std::string_view attachment = {});
  void stop();

 private:
  class body;
  explicit member_link(std::shared_ptr<body> its) : body_(std::move(its)) {}
  std::shared_ptr<body> body_;
};

}  // namespace penstock::group
