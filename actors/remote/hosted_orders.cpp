// How a hosted worker handles the session's messages.
#include "actors/protocol/tensors.hpp"
#include "actors/remote/hosted_worker.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace penstock::hosts {

/// Adapts a message to this machine.
struct hosted_worker::session_visitor {
  hosted_worker& w;

  result<void> operator()(protocol::open_dataset& order) const {
    order.config = w.deps_.dataset->config;
    order.you.worker = 0;  // the number of its flight page on this host
    return {};
  }
  result<void> operator()(protocol::assign_slots& order) const {
    order.partition = 0;
    order.partitions = 1;
    const arena::geometry shape{order.slot_bytes, order.slots, 1};
    if (w.jobs_) return w.assign(shape);
    auto layout = lay_out(w.deps_.dataset->dataset->description.tensors, order.batch_size);
    if (!layout) return tl::unexpected(std::move(layout.error()));
    if (layout->bytes > order.slot_bytes) return refuse(errc::protocol, "a batch does not fit a slot");
    w.layout_ = std::move(*layout);
    return w.assign(shape);
  }
  result<void> operator()(const protocol::load_batch& order) const {
    w.leases_ = w.leases_.value_or(0) + 1;
    w.loaded_.erase(order.slot);
    return {};
  }
  template <class Other>
  result<void> operator()(const Other&) const {
    return {};
  }
};

result<void> hosted_worker::assign(const arena::geometry& shape) {
  if (auto ok = memory_.size_and_seal(shape); !ok) return ok;
  if (auto ok = memory_.reserve(0); !ok) return ok;
  auto slots = arena::slots_view::map(memory_.fd(), shape, 0);
  if (!slots) return tl::unexpected(std::move(slots.error()));
  if (jobs_)
    jobs_->assigned(std::move(*slots));
  else
    slots_.emplace(std::move(*slots));
  return {};
}

result<void> hosted_worker::take_job(host_stream& from, const job_follows& order) {
  if (!jobs_) return refuse(errc::protocol, "it sent a job to a worker that has a dataset");
  const auto lease = jobs_->take(from, order);
  if (!lease) return tl::unexpected(lease.error());
  std::vector<char> frame;
  static_cast<void>(protocol::append_frame(frame, *lease));
  unsent_.append(frame.data(), frame.size());
  send_to_worker();
  return {};
}

result<void> hosted_worker::hear_session(std::string_view frames) {
  result<void> done;
  auto ok = from_session_.feed({frames.data(), frames.size()}, [&](protocol::to_worker&& message) {
    if (done) done = std::visit(session_visitor{*this}, message);
    std::vector<char> frame;
    static_cast<void>(protocol::append_frame(frame, message));
    unsent_.append(frame.data(), frame.size());
  });
  send_to_worker();
  return ok ? done : ok;
}

void hosted_worker::send_to_worker() {
  while (link_ && !unsent_.empty()) {
    const ssize_t sent = ::send(link_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return unsent_.clear();  // the worker is about to end
    unsent_.erase(0, static_cast<std::size_t>(sent));
  }
}

}  // namespace penstock::hosts
