// A rank's side of a group's links (links.hpp).
//
//   resting --> asking for the address (a name) --> connecting --> shaking hands --> open
//      ^               |                               |                |            |
//      +---------------+-------------------------------+----------------+------------+
#include "runtime/net/link_stream.hpp"
#include "runtime/net/links.hpp"
#include "runtime/net/name_lookup.hpp"
#include "runtime/net/process_watch.hpp"
#include "runtime/net/sockets.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;
using boost::system::error_code;

constexpr std::chrono::milliseconds rest_min = 20ms;
constexpr std::chrono::milliseconds rest_max = 1s;

}  // namespace

class member_link::body : public std::enable_shared_from_this<body> {
 public:
  body(boost::asio::io_context& io, std::shared_ptr<const stream_facts_of_side> side, callbacks calls)
      : io_(io),
        side_(std::move(side)),
        calls_(std::move(calls)),
        timer_(io),
        socket_(io),
        random_(std::random_device{}()) {}

  void attempt();
  result<void> send(const member_report& report, std::string_view attachment);
  void stop();

 private:
  void answered(name_lookup::addresses found);
  void connect_here();
  void connect_next();
  void connected_socket(unique_fd socket, local_peer peer);
  void opened();
  result<void> heard(const frame_cutter::frame& frame);
  void give_up(const link_trouble& why);
  void tell(const link_trouble& why);
  void ended(std::uint64_t id, const std::string& why);
  void fell_silent(std::uint64_t id, const std::string& why);
  void watch_process(unique_fd process);
  void rest();
  void within_deadline(void (body::*too_late)());
  void no_answer();
  void no_connection();

  boost::asio::io_context& io_;
  std::shared_ptr<const stream_facts_of_side> side_;
  callbacks calls_;
  boost::asio::steady_timer timer_;  // timer of the current step
  std::uint64_t step_ = 0;           // number of the step; identifies timers of earlier steps
  std::shared_ptr<name_lookup> names_;
  std::deque<socket_address> to_try_;
  socket_address trying_;
  boost::asio::posix::stream_descriptor socket_;  // while connecting
  /// The connection that is being made, or is open.
  struct connection {
    std::uint64_t id = 0;
    std::shared_ptr<link_stream> stream;
    unique_fd coordinator;  // pidfd of the coordinator, on the same host
    bool was_open = false;
  } link_;
  connection silent_;   // the previous connection, kept until the next one is open
  std::string report_;  // the newest report, as a frame
  std::chrono::milliseconds rest_ = rest_min;
  link_trouble told_;  // the last reason for having no connection
  std::minstd_rand random_;
  bool watching_ = false;
  bool stopped_ = false;
};

// ---- one attempt ---------------------------------------------------------------------------------------------

void member_link::body::attempt() {
  if (stopped_) return;
  to_try_.clear();
  if (side_->settings.address.what == group_address::kind::abstract_socket) return connect_here();
  if (const auto known = address_without_asking(side_->settings.address)) {
    to_try_.push_back(*known);
    return connect_next();
  }
  within_deadline(&body::no_answer);
  if (!names_) names_ = std::make_shared<name_lookup>(io_, side_->settings.address);
  names_->ask([weak = weak_from_this()](name_lookup::addresses found) {
    if (const auto self = weak.lock()) self->answered(std::move(found));
  });
}

void member_link::body::answered(name_lookup::addresses found) {
  if (stopped_) return;
  if (!found) return give_up({found.error().message});
  to_try_.assign(found->begin(), found->end());
  connect_next();
}

void member_link::body::no_answer() {
  names_->give_up();
  give_up({fmt::format("looking up the address of '{}': no answer within the deadline",
                       side_->settings.address.name)});
}

void member_link::body::connect_here() {
  auto made = connect_locally(side_->settings.address);
  if (!made) return give_up({made.error().message});
  trying_ = made->at;
  connected_socket(std::move(made->socket), std::move(made->peer));
}

void member_link::body::connect_next() {
  trying_ = to_try_.front();
  to_try_.pop_front();
  auto socket = begin_connect(trying_);
  if (!socket) return give_up({socket.error().message});
  socket_.assign(socket->release());
  within_deadline(&body::no_connection);
  socket_.async_wait(
      boost::asio::posix::stream_descriptor::wait_write,
      [self = shared_from_this(), step = step_](const error_code& status) {
        if (status || self->stopped_ || step != self->step_) return;
        unique_fd made(self->socket_.release());
        if (auto ok = finish_connect(made.get()); !ok) {
          return self->give_up({fmt::format("{} ({})", ok.error().message, text_of(self->trying_))});
        }
        self->connected_socket(std::move(made), {});
      });
}

void member_link::body::no_connection() {
  error_code ignored;
  socket_.close(ignored);
  give_up({fmt::format("connecting to {}: no answer within the deadline", text_of(trying_))});
}

void member_link::body::connected_socket(unique_fd socket, local_peer peer) {
  ++step_;
  timer_.cancel();
  connection next;
  next.id = step_;
  next.coordinator = std::move(peer.process);
  const std::weak_ptr<body> weak = weak_from_this();
  const std::uint64_t id = next.id;
  link_stream::callbacks calls;
  calls.opened = [weak] {
    if (const auto self = weak.lock()) self->opened();
  };
  calls.frame = [weak](const frame_cutter::frame& frame) -> result<void> {
    if (const auto self = weak.lock()) return self->heard(frame);
    return {};
  };
  calls.closed = [weak, id](std::optional<unknown_peer_kind>, const std::string& why) {
    if (const auto self = weak.lock()) self->ended(id, why);
  };
  calls.silent = [weak, id](const std::string& why) {
    if (const auto self = weak.lock()) self->fell_silent(id, why);
  };
  calls.held = [weak] {
    const auto self = weak.lock();
    if (self && !self->stopped_ && self->calls_.coordinator_held) self->calls_.coordinator_held();
  };
  const auto stream = link_stream::make(io_, std::move(socket), peer.pid, side_, std::move(calls));
  next.stream = stream;
  link_ = std::move(next);
  stream->start();
}

// ---- a connection --------------------------------------------------------------------------------------------

void member_link::body::opened() {
  link_.was_open = true;
  if (silent_.stream) silent_.stream->close();
  silent_ = {};
  rest_ = rest_min;
  told_ = {};
  if (!report_.empty()) link_.stream->send(report_);
  if (calls_.connected) calls_.connected();
}

result<void> member_link::body::heard(const frame_cutter::frame& frame) {
  if (frame.type == frame_type::attachment && calls_.attachment &&
      frame.payload.size() <= side_->settings.attachment_bytes_max) {
    if (!stopped_) calls_.attachment(std::string(frame.payload));
    return {};
  }
  if (frame.type != frame_type::order) return refuse(errc::protocol, "it sent a report instead of an order");
  auto order = decode_order(frame.payload, side_->settings.world_size);
  if (!order) return tl::unexpected(std::move(order.error()));
  if (!stopped_) calls_.order(std::move(*order));
  return {};
}

void member_link::body::ended(std::uint64_t id, const std::string& why) {
  if (stopped_) return;
  const std::string text = "the coordinator at " + text_of(trying_) + ": " + why;
  if (id == silent_.id) {  // another attempt is under way
    watch_process(std::move(std::exchange(silent_, {}).coordinator));
    return tell({text, true});
  }
  connection lost = std::exchange(link_, {});
  if (lost.was_open) watch_process(std::move(lost.coordinator));
  give_up({text, lost.was_open});
}

/// Opens another connection. Until it is open, reports still go over the silent one, which may recover.
void member_link::body::fell_silent(std::uint64_t id, const std::string& why) {
  if (stopped_ || id != link_.id) return;
  silent_ = std::exchange(link_, {});
  give_up({"the coordinator at " + text_of(trying_) + ": " + why});
}

void member_link::body::watch_process(unique_fd process) {
  if (!process || !calls_.coordinator_ended || std::exchange(watching_, true)) return;
  process_watch::begin(io_, std::move(process), side_->settings.lost_after,
                       [weak = weak_from_this()](bool gone) {
                         const auto self = weak.lock();
                         if (!self) return;
                         self->watching_ = false;
                         if (gone && !self->stopped_) self->calls_.coordinator_ended();
                       });
}

result<void> member_link::body::send(const member_report& report, std::string_view attachment) {
  if (attachment.size() > side_->settings.attachment_bytes_max) {
    return refuse(errc::config, "an attachment of {} bytes, but at most {} can be sent", attachment.size(),
                  side_->settings.attachment_bytes_max);
  }
  auto frame = encode(report);
  if (!frame) return tl::unexpected(std::move(frame.error()));
  if (!attachment.empty()) frame->append(attachment_frame(attachment));
  report_ = std::move(*frame);
  if (stopped_) return {};
  if (link_.was_open) {
    link_.stream->send(report_);
  } else if (silent_.stream) {
    silent_.stream->send(report_);
  }
  return {};
}

// ---- between attempts ----------------------------------------------------------------------------------------

void member_link::body::give_up(const link_trouble& why) {
  ++step_;
  timer_.cancel();
  if (!to_try_.empty()) return connect_next();
  rest();
  tell(why);
}

void member_link::body::tell(const link_trouble& why) {
  if (std::exchange(told_, why) != why && calls_.disconnected) calls_.disconnected(why);
}

void member_link::body::rest() {
  // Ranks that lost the same coordinator must not all reconnect at once.
  std::uniform_int_distribution<std::int64_t> spread(rest_.count() * 3 / 4, rest_.count() * 5 / 4);
  timer_.expires_after(std::chrono::milliseconds(spread(random_)));
  rest_ = std::min(rest_ * 2, rest_max);
  timer_.async_wait([self = shared_from_this()](const error_code& status) {
    if (!status) self->attempt();
  });
}

void member_link::body::within_deadline(void (body::*too_late)()) {
  timer_.expires_after(side_->settings.handshake_deadline);
  timer_.async_wait([self = shared_from_this(), too_late, step = step_](const error_code& status) {
    if (!status && !self->stopped_ && step == self->step_) ((*self).*too_late)();
  });
}

void member_link::body::stop() {
  if (std::exchange(stopped_, true)) return;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  for (connection* const one : {&link_, &silent_}) {
    if (one->stream) one->stream->close();
    *one = {};
  }
  if (names_) names_->stop();
}

// ---- member_link ---------------------------------------------------------------------------------------------

result<std::unique_ptr<member_link>> member_link::make(boost::asio::io_context& io, link_settings settings,
                                                       callbacks calls) {
  auto side = facts_of_side(std::move(settings), false);
  if (!side) return tl::unexpected(std::move(side.error()));
  auto its = std::make_shared<body>(io, std::move(*side), std::move(calls));
  std::unique_ptr<member_link> link(new member_link(its));
  boost::asio::post(io, [its] { its->attempt(); });
  return link;
}

member_link::~member_link() {
  body_->stop();
}

result<void> member_link::send(const member_report& report, std::string_view attachment) {
  return body_->send(report, attachment);
}

void member_link::stop() {
  body_->stop();
}

}  // namespace penstock::group
