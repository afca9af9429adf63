// Rank 0's side of a group's links (group_link.hpp).
#include "runtime/base/log.hpp"
#include "runtime/group/group_link.hpp"
#include "runtime/group/group_sockets.hpp"
#include "runtime/group/group_stream.hpp"
#include "runtime/group/process_watch.hpp"
#include "runtime/group/shared_port.hpp"
#include "runtime/group/unknown_peer_tally.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;
using boost::system::error_code;

constexpr int accepts_a_turn = 16;
constexpr auto listen_again = 100ms;
// An earlier process of this rank may still hold the address, and sees each process that asks.
constexpr std::uint32_t refusals_before_asking = 20;
constexpr auto accept_again = 100ms;  // when this process has no descriptors left

/// A rank, a process that takes its place, and both again, for dead connections that have not been noticed yet.
std::size_t links_max(std::uint32_t world_size) {
  return 4 * std::size_t{world_size};
}

}  // namespace

class coordinator_listener::body : public std::enable_shared_from_this<body> {
 public:
  body(boost::asio::io_context& io, std::shared_ptr<const stream_facts_of_side> side, callbacks calls)
      : io_(io), side_(std::move(side)), calls_(std::move(calls)), listening_(io), again_(io), news_(io) {}

  void listen();
  void send(link_id to, const group_order& order, std::string_view attachment);
  void stop();

  [[nodiscard]] const unknown_peer_counts& unknown_peers() const { return tally_.counts(); }
  [[nodiscard]] std::size_t links() const { return links_.size(); }
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }

 private:
  struct connection {
    std::shared_ptr<group_stream> stream;
    std::string name;
    unique_fd process;  // its pidfd, on the same host
  };

  void share_port();
  void accept_more();
  bool accept_one();
  void admit(unique_fd socket);
  void cannot(const std::string& why);
  void try_again(std::chrono::milliseconds later, void (body::*what)());
  void make_room_for_pending();
  void make_room_for_link();
  void greeted(link_id id);
  result<void> heard(link_id id, const frame_cutter::frame& frame);
  void ended(link_id id, std::optional<unknown_peer_kind> kind, const std::string& why);
  void lost(link_id id, const std::string& why);
  void note(unknown_peer_kind kind, const std::string& peer, const std::string& text);
  void tell_news();

  boost::asio::io_context& io_;
  std::shared_ptr<const stream_facts_of_side> side_;
  callbacks calls_;
  boost::asio::posix::stream_descriptor listening_;
  boost::asio::steady_timer again_;
  boost::asio::steady_timer news_;
  steady_time news_at_ = never;
  std::unique_ptr<shared_port> share_;     // of a port shared on this host
  bool shares_ = false;                    // another listener of this process accepts for it
  std::map<link_id, connection> pending_;  // the oldest first
  std::map<link_id, connection> links_;
  link_id ids_ = 0;
  unknown_peer_tally tally_;
  std::string why_not_;         // as last reported
  std::uint32_t refusals_ = 0;  // of the address, in a row
  std::size_t watches_ = 0;
  bool stopped_ = false;
};

// ---- listening -----------------------------------------------------------------------------------------------

void coordinator_listener::body::listen() {
  if (stopped_) return;
  if (!share_) share_port();
  const auto patience = std::chrono::ceil<std::chrono::seconds>(side_->settings.handshake_deadline);
  auto socket = listen_at(side_->settings.address, patience, refusals_ % refusals_before_asking == 0);
  if (!socket) {
    ++refusals_;
    try_again(listen_again, &body::listen);
    if (!share_ || !share_->is_held_by_another()) return cannot(socket.error().message);
    if (!std::exchange(shares_, true) && calls_.listening) calls_.listening(text_of(side_->settings.address));
    return;
  }
  if (share_) share_->hold();
  const group_address where = listening_at(socket->get(), side_->settings.address);
  if (where.name != side_->settings.address.name)
    log::warn("group", "another user has taken the name {}; the group meets at {}",
              text_of(side_->settings.address), text_of(where));
  listening_.assign(socket->release());
  why_not_.clear();
  accept_more();
  if (calls_.listening) calls_.listening(text_of(where));
}

/// Receives what another listener of this process accepts for this group.
void coordinator_listener::body::share_port() {
  const group_address& address = side_->settings.address;
  if (address.what != group_address::kind::tcp || address.port == 0) return;
  share_ = std::make_unique<shared_port>(
      text_of(address), side_->settings.group, [weak = weak_from_this(), &io = io_](unique_fd socket) {
        boost::asio::post(io, [weak, held = std::make_shared<unique_fd>(std::move(socket))] {
          const auto self = weak.lock();
          if (self && !self->stopped_) self->admit(std::move(*held));
        });
      });
}

void coordinator_listener::body::accept_more() {
  if (stopped_) return;
  listening_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [self = shared_from_this()](const error_code& status) {
                          if (status || self->stopped_) return;
                          for (int i = 0; i < accepts_a_turn; ++i) {
                            if (!self->accept_one()) return;
                            if (self->stopped_) return;
                          }
                          self->accept_more();
                        });
}

/// False: nothing to accept for now. It continues by itself.
bool coordinator_listener::body::accept_one() {
  unique_fd socket(::accept4(listening_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      cannot(os_failure(errc::system, errno, "accepting a connection of the group").message);
      try_again(accept_again, &body::accept_more);
      return false;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) return true;  // this connection is gone already
    accept_more();
    return false;
  }
  if (share_) socket = share_->route(std::move(socket));
  if (socket) admit(std::move(socket));
  return true;
}

void coordinator_listener::body::admit(unique_fd socket) {
  connection next{.stream = {}, .name = peer_name(socket.get()), .process = {}};
  std::int32_t pid = 0;
  if (side_->settings.address.what == group_address::kind::abstract_socket) {
    local_peer who = local_peer_of(socket.get());
    if (who.user != ::geteuid()) {
      note(unknown_peer_kind::other_user, next.name, fmt::format("this process is of user {}", ::geteuid()));
      return;
    }
    next.process = std::move(who.process);
    pid = who.pid;
  }
  make_room_for_pending();
  const link_id id = ++ids_;
  const std::weak_ptr<body> weak = weak_from_this();
  const auto stream =
      group_stream::make(io_, std::move(socket), pid, side_,
                         {.opened =
                              [weak, id] {
                                if (const auto self = weak.lock()) self->greeted(id);
                              },
                          .frame = [weak, id](const frame_cutter::frame& frame) -> result<void> {
                            if (const auto self = weak.lock()) return self->heard(id, frame);
                            return {};
                          },
                          .closed =
                              [weak, id](std::optional<unknown_peer_kind> kind, const std::string& why) {
                                if (const auto self = weak.lock()) self->ended(id, kind, why);
                              },
                          .held =
                              [weak, id] {
                                const auto self = weak.lock();
                                if (self && !self->stopped_ && self->calls_.held) self->calls_.held(id);
                              }});
  next.stream = stream;
  pending_.emplace(id, std::move(next));
  stream->start();
}

void coordinator_listener::body::cannot(const std::string& why) {
  if (why == why_not_) return;
  why_not_ = why;
  if (calls_.not_listening) calls_.not_listening(why);
}

void coordinator_listener::body::try_again(std::chrono::milliseconds later, void (body::*what)()) {
  again_.expires_after(later);
  again_.async_wait([self = shared_from_this(), what](const error_code& status) {
    if (!status) ((*self).*what)();
  });
}

// ---- connections ---------------------------------------------------------------------------------------------

void coordinator_listener::body::make_room_for_pending() {
  if (pending_.size() < pending_max) return;
  auto oldest = std::ranges::find_if(pending_, [](const auto& one) { return !one.second.stream->proven(); });
  if (oldest == pending_.end()) oldest = pending_.begin();
  note(unknown_peer_kind::crowded_out, oldest->second.name,
       fmt::format("{} others came before it said who it is", pending_max));
  oldest->second.stream->drop();
  pending_.erase(oldest);
}

void coordinator_listener::body::make_room_for_link() {
  if (links_.size() < links_max(side_->settings.world_size)) return;
  const auto silent =
      std::ranges::min_element(links_, {}, [](const auto& one) { return one.second.stream->last_heard(); });
  const auto stream = silent->second.stream;
  const link_id id = silent->first;
  stream->drop();
  lost(id, "there are too many connections, and it was silent for longest");
}

void coordinator_listener::body::greeted(link_id id) {
  make_room_for_link();
  if (auto opened = pending_.extract(id)) links_.insert(std::move(opened));
}

result<void> coordinator_listener::body::heard(link_id id, const frame_cutter::frame& frame) {
  if (frame.type == frame_type::attachment && calls_.attachment &&
      frame.payload.size() <= side_->settings.attachment_bytes_max) {
    if (!stopped_) calls_.attachment(id, std::string(frame.payload));
    return {};
  }
  if (frame.type != frame_type::report) return refuse(errc::protocol, "it gives orders");
  auto report = decode_report(frame.payload, side_->settings.world_size);
  if (!report) return tl::unexpected(std::move(report.error()));
  if (!stopped_) calls_.report(id, std::move(*report));
  return {};
}

void coordinator_listener::body::ended(link_id id, std::optional<unknown_peer_kind> kind,
                                       const std::string& why) {
  if (stopped_) return;
  if (const auto unknown = pending_.extract(id)) {
    note(kind.value_or(unknown_peer_kind::garbage), unknown.mapped().name, why);
  } else {
    lost(id, why);
  }
}

void coordinator_listener::body::lost(link_id id, const std::string& why) {
  auto link = links_.extract(id);
  if (!link) return;
  unique_fd process = std::move(link.mapped().process);
  if (process && calls_.process_ended && watches_ < links_max(side_->settings.world_size)) {
    ++watches_;
    process_watch::begin(io_, std::move(process), side_->settings.lost_after,
                         [weak = weak_from_this(), id](bool gone) {
                           const auto self = weak.lock();
                           if (!self) return;
                           --self->watches_;
                           if (gone && !self->stopped_) self->calls_.process_ended(id);
                         });
  }
  if (!stopped_) calls_.closed(id, why);
}

void coordinator_listener::body::send(link_id to, const group_order& order, std::string_view attachment) {
  const auto link = links_.find(to);
  if (stopped_ || link == links_.end()) return;
  auto frame = encode(order);
  if (!frame) return log::error("group", "{}", frame.error().message);
  if (!attachment.empty()) frame->append(attachment_frame(attachment));
  link->second.stream->send(std::move(*frame));
}

// ---- unknown peers -----------------------------------------------------------------------------------------------

void coordinator_listener::body::note(unknown_peer_kind kind, const std::string& peer,
                                      const std::string& text) {
  tally_.note(kind, peer, text);
  tell_news();
}

void coordinator_listener::body::tell_news() {
  for (const unknown_peer_news& one : tally_.news(std::chrono::steady_clock::now())) {
    if (calls_.unknown_peer && !stopped_) calls_.unknown_peer(one);
  }
  const steady_time next = tally_.next();
  if (stopped_ || next == never || next == news_at_) return;
  news_at_ = next;
  news_.expires_at(next);
  news_.async_wait([self = shared_from_this()](const error_code& status) {
    if (status || self->stopped_) return;
    self->news_at_ = never;
    self->tell_news();
  });
}

void coordinator_listener::body::stop() {
  if (std::exchange(stopped_, true)) return;
  error_code ignored;
  share_.reset();
  listening_.close(ignored);
  again_.cancel();
  news_.cancel();
  for (auto* const all : {&pending_, &links_}) {
    for (auto& [id, one] : *all) one.stream->close();
    all->clear();
  }
}

// ---- coordinator_listener ------------------------------------------------------------------------------------

result<std::unique_ptr<coordinator_listener>> coordinator_listener::make(boost::asio::io_context& io,
                                                                         link_settings settings,
                                                                         callbacks calls) {
  auto side = facts_of_side(std::move(settings), true);
  if (!side) return tl::unexpected(std::move(side.error()));
  auto its = std::make_shared<body>(io, std::move(*side), std::move(calls));
  std::unique_ptr<coordinator_listener> listener(new coordinator_listener(its));
  boost::asio::post(io, [its] { its->listen(); });
  return listener;
}

coordinator_listener::~coordinator_listener() {
  body_->stop();
}

void coordinator_listener::send(link_id to, const group_order& order, std::string_view attachment) {
  body_->send(to, order, attachment);
}

void coordinator_listener::stop() {
  body_->stop();
}

std::array<std::uint64_t, static_cast<std::size_t>(unknown_peer_kind::count)>
coordinator_listener::unknown_peers() const {
  return body_->unknown_peers();
}

std::size_t coordinator_listener::links() const {
  return body_->links();
}

std::size_t coordinator_listener::pending() const {
  return body_->pending();
}

}  // namespace penstock::group
