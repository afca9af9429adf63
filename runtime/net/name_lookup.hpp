// Looks up the address of a group's coordinator on a separate thread, because the system's resolver may take half a
// minute. Used by member_link, on the io_context's thread.
#pragma once

#include "runtime/net/sockets.hpp"
#include "runtime/process/side_thread.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock::group {

class name_lookup : public std::enable_shared_from_this<name_lookup> {
 public:
  /// At least one address, or the reason why there is none (errc::io).
  using addresses = result<std::vector<socket_address>>;

  name_lookup(boost::asio::io_context& io, group_address address)
      : address_(std::move(address)), mail_(std::make_shared<mailbox>()) {
    mail_->io = &io;
  }

  /// Calls `found` once, unless give_up() or stop() comes first; calls it at once if an earlier lookup
  /// finished after give_up().
  void ask(std::function<void(addresses)> found);
  void give_up() { found_ = {}; }
  /// Does not wait for the thread.
  void stop();

 private:
  /// The lookup thread posts its result through this, until stop().
  struct mailbox {
    std::mutex mutex;
    boost::asio::io_context* io = nullptr;
  };
  void answered(addresses found);

  const group_address address_;
  const std::shared_ptr<mailbox> mail_;
  process::side_thread thread_{"group-names"};
  bool asking_ = false;  // the thread resolves the address
  std::function<void(addresses)> found_;
  addresses late_;  // arrived while nothing waited for them
};

}  // namespace penstock::group
