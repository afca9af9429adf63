// host_hub's look at its hosts, several times a second: who is silent, and what the status says.
#include "actors/remote/host_hub.hpp"

#include <algorithm>

namespace penstock::hosts {

using namespace std::chrono_literals;

void host_hub::look_later() {
  timer_.expires_after(std::clamp<nanoseconds>(settings_.book.lost_after / 16, 10ms, 250ms));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& status) {
    if (!status && !self->all_closed_) self->look();
  });
}

void host_hub::look() {
  for (const auto& [id, one] : connections_) book_.heard(id, one.connection->last_heard());
  carry_out();
  std::vector<host_status> all;
  for (const host_view& view : book_.hosts(now())) {
    host_status& one = all.emplace_back();
    one.name = shown_name(view.card.name);
    one.address = view.card.address;
    one.pid = view.card.pid;
    one.state = view.leaving ? "draining" : "ready";
    one.workers = view.places;
    one.samples_per_second = view.samples_per_second;
    one.bytes_per_second = view.bytes_per_second;
    one.round_trip_seconds = std::chrono::duration<double>(view.round_trip).count();
    one.cpu_cores = records_.cores_of(view.card);
  }
  looks_ = !all.empty();
  board_->shows(std::move(all), records_);
  if (looks_) look_later();
}

}  // namespace penstock::hosts
