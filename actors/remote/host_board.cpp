#include "actors/remote/host_hub.hpp"

namespace penstock::hosts {

void host_board::listens_at(std::string where) {
  const std::lock_guard hold(mutex_);
  where_ = std::move(where);
}

void host_board::shows(std::vector<host_status> hosts) {
  const std::lock_guard hold(mutex_);
  hosts_ = std::move(hosts);
}

void host_board::add_to(session_status& status) const {
  const std::lock_guard hold(mutex_);
  status.hosts_join_at = where_;
  status.hosts = hosts_;
}

}  // namespace penstock::hosts
