// Accepts rank 0's connections: binds the group's address, retries while another process holds it,
// and shares it with other groups of this process (shared_port.hpp). Used by coordinator_listener, on
// the io_context's thread.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/net/links.hpp"
#include "runtime/net/shared_port.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace penstock::group {

class listening_port : public std::enable_shared_from_this<listening_port> {
 public:
  struct callbacks {
    std::function<void(unique_fd)> accepted;
    std::function<void(const std::string& where)> listening;
    /// Called when the reason changes.
    std::function<void(const std::string& why)> not_listening;
  };

  listening_port(boost::asio::io_context& io, const link_settings& settings, callbacks calls)
      : io_(io),
        address_(settings.address),
        group_(settings.group),
        first_bytes_within_(std::chrono::ceil<std::chrono::seconds>(settings.handshake_deadline)),
        calls_(std::move(calls)),
        socket_(io),
        again_(io) {}

  void listen();
  /// No callback follows this call.
  void stop();

 private:
  void share();
  void accept_more();
  bool accept_one();
  void cannot(const std::string& why);
  void try_again(std::chrono::milliseconds later, void (listening_port::*what)());

  boost::asio::io_context& io_;
  const group_address address_;
  const std::string group_;
  const std::chrono::seconds first_bytes_within_;
  const callbacks calls_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer again_;
  std::unique_ptr<shared_port> share_;  // this listener's part of a shared port
  bool shares_ = false;                 // another listener of this process accepts for it
  std::string why_not_;                 // as last reported
  std::uint32_t refusals_ = 0;          // how many times in a row the address was refused
  bool stopped_ = false;
};

}  // namespace penstock::group
