// How a host's connection handles the session's messages.
#include "actors/remote/host_connection.hpp"

namespace penstock::hosts {

struct host_connection::session_visitor {
  host_connection& s;
  host_stream& to;

  result<void> operator()(const start_place&) const {
    auto made = hosted_worker::start({s.facts_.io, s.facts_.lifeline, s.dataset_, s.digests_, s.number_, s.wake_});
    if (made) {
      s.worker_ = std::move(*made);
    } else {
      to.put(from_host(place_not_started{made.error().message}));
    }
    return {};
  }
  result<void> operator()(const to_place& order) const {
    return s.worker_ ? s.worker_->hear_session(order.frame) : result<void>();
  }
  result<void> operator()(const signal_place& order) const {
    if (s.worker_) s.worker_->signal(order.number);
    return {};
  }
  result<void> operator()(const send_again& order) const {
    return s.worker_ ? s.worker_->send_again(to, order) : result<void>();
  }
  result<void> operator()(const job_follows& order) const {
    if (s.worker_) return s.worker_->take_job(to, order);
    return to.skip_raw(order.bytes, s.dataset_->lost_after);  // the worker has ended meanwhile
  }
  result<void> operator()(const file_offered& order) const {
    if (s.worker_ && s.worker_->jobs()) s.worker_->jobs()->offered(order);
    return {};
  }
  result<void> operator()(const file_follows& order) const {
    if (s.worker_ && s.worker_->jobs()) return s.worker_->jobs()->take_file(to, order);
    return to.skip_raw(order.bytes, s.dataset_->lost_after);
  }
  result<void> operator()(const session_over&) const {
    s.outcome_.session_over = true;
    return {};
  }
  result<void> operator()(const please_leave&) const {
    s.listener_.sent_away(s.session_);
    return {};
  }
  result<void> operator()(const ping& order) const {
    s.listener_.measured(s.session_, order);
    to.put(from_host(pong{order.number, s.cpu_.used(s.worker_.get()).count()}));
    return {};
  }
  template <class Other>
  result<void> operator()(const Other&) const {
    return refuse(errc::protocol, "it sent a message at the wrong time");
  }
};

result<void> host_connection::hear_session(host_stream& to) {
  if (auto ok = to.read(); !ok) return ok;
  while (true) {
    auto message = to.next<to_host>();
    if (!message) return tl::unexpected(std::move(message.error()));
    if (!*message) return {};
    if (auto ok = std::visit(session_visitor{*this, to}, **message); !ok) return ok;
  }
}

}  // namespace penstock::hosts
