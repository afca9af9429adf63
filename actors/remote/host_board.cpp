#include "actors/remote/host_hub.hpp"

#include <algorithm>

namespace penstock::hosts {

void host_board::listens_at(std::string where) {
  const std::lock_guard hold(mutex_);
  where_ = std::move(where);
}

void host_board::calls(std::vector<std::string> addresses) {
  const std::lock_guard hold(mutex_);
  called_ = std::move(addresses);
}

void host_board::waits(steady_time since, nanoseconds limit) {
  const std::lock_guard hold(mutex_);
  waits_since_ = since;
  wait_limit_ = limit;
}

void host_board::shows(std::vector<host_status> hosts, const host_records& records, std::map<std::uint32_t, std::uint64_t> resident) {
  const std::lock_guard hold(mutex_);
  hosts_ = std::move(hosts);
  records_ = records;
  resident_ = std::move(resident);
  if (!hosts_.empty()) waits_since_.reset();
  std::erase_if(deaths_, [&](const auto& one) {
    return std::ranges::none_of(hosts_, [&](const host_status& h) { return host_key(h.name, h.pid) == one.first; });
  });
}

void host_board::worker_died(const death_report& death) {
  if (!is_unexpected(death.cause)) return;
  const std::lock_guard hold(mutex_);
  for (const host_status& one : hosts_) {
    if (std::ranges::find(one.workers, death.worker) != one.workers.end()) ++deaths_[{one.name, one.pid}];
  }
}

void host_board::add_to(session_status& status) const {
  const std::lock_guard hold(mutex_);
  status.hosts_join_at = where_;
  status.hosts_called = called_;
  status.hosts = hosts_;
  for (host_status& one : status.hosts) {
    const auto deaths = deaths_.find({one.name, one.pid});
    if (deaths != deaths_.end()) one.deaths = deaths->second;
  }
  for (worker_status& w : status.workers) {
    const auto bytes = resident_.find(w.id);
    if (bytes != resident_.end() && bytes->second > 0 && w.pid) w.rss_bytes = bytes->second;
  }
  status.host_records = records_.all(now());
  const auto seconds = [](nanoseconds time) { return std::chrono::duration<double>(time).count(); };
  if (waits_since_) status.waits_for_hosts = hosts_wait{seconds(now() - *waits_since_), seconds(wait_limit_)};
}

}  // namespace penstock::hosts
