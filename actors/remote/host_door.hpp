// Where a host waits to be called (`penstock host --listen`): a thread that accepts connections. Used by loader_host.
#pragma once

#include "actors/remote/host_connection.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/wake_event.hpp"
#include "runtime/group/group_address.hpp"

#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace penstock::hosts {

class host_door {
 public:
  /// Listens at once; accepts after open(). Refuses (errc::io).
  static result<std::unique_ptr<host_door>> listen(const group::group_address& address);
  ~host_door() { close(); }
  host_door(const host_door&) = delete;
  host_door& operator=(const host_door&) = delete;

  /// The address, with the actual port.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  /// `take` is called on the door's thread.
  void open(std::function<void(accepted_call)> take);
  /// Waits for the thread.
  void close();

 private:
  host_door(unique_fd socket, std::string where);
  void run(const std::function<void(accepted_call)>& take) const;

  const unique_fd socket_;
  const wake_event wake_;
  const std::string where_;
  std::thread thread_;
};

}  // namespace penstock::hosts
