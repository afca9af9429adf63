// Rank 0's side of a group's links (links.hpp).
#include "runtime/base/log.hpp"
#include "runtime/group/unknown_peer_tally.hpp"
#include "runtime/net/link_stream.hpp"
#include "runtime/net/links.hpp"
#include "runtime/net/listening_port.hpp"
#include "runtime/net/process_watch.hpp"
#include "runtime/net/sockets.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

namespace penstock::group {
namespace {

using boost::system::error_code;

/// For each rank there is room for its process, for a process that takes its
/// place, and for both again if their dead connections have not been detected yet.
std::size_t links_max(std::uint32_t world_size) {
  return 4 * std::size_t{world_size};
}

}  // namespace

class coordinator_listener::body : public std::enable_shared_from_this<body> {
 public:
  body(boost::asio::io_context& io, std::shared_ptr<const stream_facts_of_side> side, callbacks calls)
      : io_(io), side_(std::move(side)), calls_(std::move(calls)), news_(io) {}

  void listen();
  void send(link_id to, const group_order& order, std::string_view attachment);
  void stop();

  [[nodiscard]] const unknown_peer_counts& unknown_peers() const { return tally_.counts(); }
  [[nodiscard]] std::size_t links() const { return links_.size(); }
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }

 private:
  struct connection {
    std::shared_ptr<link_stream> stream;
    std::string name;
    unique_fd process;  // pidfd of the peer, on the same host
  };

  void admit(unique_fd socket);
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
  std::shared_ptr<listening_port> port_;
  boost::asio::steady_timer news_;
  steady_time news_at_ = never;
  std::map<link_id, connection> pending_;  // the oldest first
  std::map<link_id, connection> links_;
  link_id ids_ = 0;
  unknown_peer_tally tally_;
  std::size_t watches_ = 0;
  bool stopped_ = false;
};

// ---- connections ---------------------------------------------------------------------------------------------

void coordinator_listener::body::listen() {
  if (stopped_) return;
  const auto here = [weak = weak_from_this()](auto what) {
    if (const auto self = weak.lock(); self && !self->stopped_) what(*self);
  };
  port_ = std::make_shared<listening_port>(
      io_, side_->settings,
      listening_port::callbacks{
          [here](unique_fd socket) { here([&](body& it) { it.admit(std::move(socket)); }); },
          [here](const std::string& where) {
            here([&](body& it) {
              if (it.calls_.listening) it.calls_.listening(where);
            });
          },
          [here](const std::string& why) {
            here([&](body& it) {
              if (it.calls_.not_listening) it.calls_.not_listening(why);
            });
          }});
  port_->listen();
}

void coordinator_listener::body::admit(unique_fd socket) {
  connection next{.stream = {}, .name = peer_name(socket.get()), .process = {}};
  std::int32_t pid = 0;
  if (side_->settings.address.what == group_address::kind::abstract_socket) {
    local_peer who = local_peer_of(socket.get());
    if (who.user != ::geteuid()) {
      note(unknown_peer_kind::other_user, next.name,
           fmt::format("this process belongs to user {}", ::geteuid()));
      return;
    }
    next.process = std::move(who.process);
    pid = who.pid;
  }
  make_room_for_pending();
  const link_id id = ++ids_;
  const std::weak_ptr<body> weak = weak_from_this();
  const auto stream =
      link_stream::make(io_, std::move(socket), pid, side_,
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

void coordinator_listener::body::make_room_for_pending() {
  if (pending_.size() < pending_max) return;
  auto oldest = std::ranges::find_if(pending_, [](const auto& one) { return !one.second.stream->proven(); });
  if (oldest == pending_.end()) oldest = pending_.begin();
  note(unknown_peer_kind::crowded_out, oldest->second.name,
       fmt::format("{} other connections arrived before it identified itself", pending_max));
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
  lost(id, "there are too many connections, and this one was silent for the longest time");
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
  if (frame.type != frame_type::report) return refuse(errc::protocol, "it sent an order instead of a report");
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
  if (port_) port_->stop();
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
