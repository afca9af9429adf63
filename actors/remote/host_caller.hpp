// Calls one host that listens (`penstock host --listen`): keeps as many connections to it as it has workers. Used by host_hub,
// on the session's io thread; a side thread connects, because looking up a name may take long.
#pragma once

#include "actors/remote/trouble_filter.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/process/side_thread.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace penstock::hosts {

class host_caller : public std::enable_shared_from_this<host_caller> {
 public:
  host_caller(boost::asio::io_context& io, group::group_address address, std::function<void(unique_fd)> connected);

  ~host_caller() { stop(); }
  host_caller(const host_caller&) = delete;
  host_caller& operator=(const host_caller&) = delete;

  void start();
  /// Call when the host has said how many workers it offers.
  void offers(std::uint32_t workers);
  /// Call when a connection has been admitted: earlier problems are over.
  void joined() { troubles_.forget(); }
  /// Call when a connection has ended. Calls the host again, after at least `pause`. `why`: why the connection could
  /// not be used; empty: no problem.
  void gone(nanoseconds pause, const std::string& why = {});
  /// Call when the session is over. Does not wait for the thread.
  void stop();

 private:
  /// Lets the side thread post to the io thread until stop().
  struct mailbox {
    std::mutex mutex;
    boost::asio::io_context* io = nullptr;
  };
  void call_more();
  void call_later(nanoseconds pause);
  void called(unique_fd socket, const std::string& why);
  void say(const std::string& why);

  const group::group_address address_;
  const std::function<void(unique_fd)> connected_;
  const std::shared_ptr<mailbox> mail_;
  boost::asio::steady_timer timer_;
  process::side_thread thread_{"hosts-call"};
  std::uint32_t wanted_ = 1;
  std::uint32_t live_ = 0;
  bool busy_ = false;  // connecting, or pausing before the next attempt
  bool over_ = false;
  trouble_filter troubles_;
};

}  // namespace penstock::hosts
