#include "actors/remote/host_hub.hpp"

#include "actors/caf/caf.hpp"
#include "actors/remote/host_connect.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/net/sockets.hpp"

#include <boost/asio/post.hpp>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto first_bytes_within = 5s;
constexpr std::size_t unknown_at_once = 64;
constexpr std::uint64_t unknown_logged = 10;  // further ones could be a flood
constexpr std::size_t refusals_remembered = 1000;
constexpr auto goodbye_deadline = 1500ms;
constexpr auto accept_again_after = 100ms;
// How soon to call a host again: after its connection was lost, if it was busy, and if it was refused. A refused
// host waits longest, because the reason may last.
constexpr nanoseconds call_again_after = 300ms;
constexpr nanoseconds call_busy_after = 1s;
constexpr nanoseconds call_refused_after = 5s;

std::string text_of_card(const host_card& card) {
  return fmt::format("{} ({}, pid {})", card.name, card.address, card.pid);
}

}  // namespace

// ---- listening ----------------------------------------------------------------------------------------------

host_hub::host_hub(process::io_thread& io, const hub_settings& settings, connection_deps deps,
                   std::shared_ptr<host_board> board, host_listener listener)
    : io_(io),
      settings_(settings),
      deps_(std::make_shared<const connection_deps>(std::move(deps))),
      board_(std::move(board)),
      listener_(std::move(listener)),
      socket_(io.context()),
      timer_(io.context()),
      accept_timer_(io.context()),
      book_(settings.book) {}

result<void> host_hub::open(supervisor::supervisor_actor supervisor) {
  supervisor_ = std::move(supervisor);
  if (settings_.address) {
    if (auto ok = listen(); !ok) return ok;
  }
  std::vector<std::string> called;
  for (const group::group_address& one : settings_.called) called.push_back(text_of(one));
  board_->calls(std::move(called));
  if (!settings_.has_local_workers) say_that_it_waits();
  boost::asio::post(io_.context(), [self = shared_from_this()] {
    if (self->socket_.is_open()) self->accept_more();
    for (const group::group_address& one : self->settings_.called) self->call(one);
  });
  return {};
}

result<void> host_hub::listen() {
  auto socket = listen_there(*settings_.address, first_bytes_within);
  if (!socket) return refuse(socket.error().code, "no loader host can join: {} ([loader.hosts] listen)", socket.error().message);
  const std::string where = text_of(group::listening_at(socket->get(), *settings_.address));
  board_->listens_at(where);
  log::info("hosts", "loader hosts join at {}{}", where,
            deps_->tls ? "" : ", without a secret: any machine that reaches that port may join");
  socket_.assign(socket->release());
  return {};
}

void host_hub::call(const group::group_address& address) {
  log::info("hosts", "calling the loader host at {}{}", text_of(address), deps_->tls_of_calls ? "" : ", without a secret");
  const auto place = std::make_shared<std::weak_ptr<host_caller>>();
  auto caller = std::make_shared<host_caller>(
      io_.context(), address, [weak = weak_from_this(), place](unique_fd socket) {
        const auto self = weak.lock();
        if (self && !self->all_closed_) self->connected(std::move(socket), connected_by::session, place->lock());
      });
  *place = caller;
  caller->start();
  callers_.push_back(std::move(caller));
}

void host_hub::say_that_it_waits() const {
  log::warn("hosts", "there is no loader worker: waiting up to {} for a loader host ([loader.hosts] wait)",
            duration_for_people(settings_.wait));
  board_->waits(now(), settings_.wait);
}

void host_hub::accept_more() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& status) {
                       if (status || self->all_closed_) return;
                       unique_fd socket(::accept4(self->socket_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
                       if (socket) {
                         self->accepted(std::move(socket));
                         return self->accept_more();
                       }
                       // Perhaps no descriptor is free: let the connection wait, without keeping this thread busy.
                       self->accept_later();
                     });
}

void host_hub::accept_later() {
  accept_timer_.expires_after(accept_again_after);
  accept_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& status) {
    if (!status && !self->all_closed_) self->accept_more();
  });
}

void host_hub::accepted(unique_fd socket) {
  const auto unknown = [](const auto& one) { return !one.second.known && !one.second.caller && !one.second.cut; };
  if (static_cast<std::size_t>(std::ranges::count_if(connections_, unknown)) >= unknown_at_once) {
    entry& oldest = std::ranges::find_if(connections_, unknown)->second;
    oldest.cut = true;
    oldest.connection->close_soon();
  }
  connected(std::move(socket), connected_by::host, nullptr);
}

void host_hub::connected(unique_fd socket, connected_by who, const std::shared_ptr<host_caller>& caller) {
  const connection_id id = ++last_connection_;
  std::string address = group::peer_name(socket.get());
  auto tell = [weak = weak_from_this(), &context = io_.context(), id](connection_news news) {
    boost::asio::post(context, [weak, id, held = std::make_shared<connection_news>(std::move(news))] {
      if (const auto self = weak.lock()) self->hear(id, std::move(*held));
    });
  };
  entry& made = connections_[id];
  made.caller = caller;
  made.connection = std::make_unique<remote_connection>(std::move(socket), who, std::move(address), deps_, std::move(tell));
}

// ---- news of connections ------------------------------------------------------------------------------------------

struct host_hub::news_visitor {
  host_hub& hub;
  connection_id id;
  entry& of;

  void operator()(const host_known& news) const {
    of.known = true;
    if (of.caller) of.caller->offers(news.workers);
    hub.book_.offers(id, news.workers);
  }
  void operator()(const host_agreed& news) const {
    if (hub.all_closed_ || !hub.book_.joined(id, news.card, now()))
      return of.connection->order(turn_away{fmt::format("the session has no place for more than {}",
                                                  counted(hub.settings_.book.places, "remote worker"))});
    of.card = news.card;
    if (of.caller) of.caller->joined();
    of.connection->order(give_place{hub.book_.place_of(id)});
    if (!std::exchange(hub.looks_, true)) hub.look_later();
  }
  void operator()(worker_runs& news) const {
    if (const auto then = std::exchange(of.then, {})) then(supervisor::linked_child{news.pid, nullptr, std::move(*news.link), std::move(*news.parcels), of.card.process});
  }
  void operator()(worker_refused& news) const {
    of.who.reset();
    if (const auto then = std::exchange(of.then, {})) then(tl::unexpected(std::move(news.why)));
    hub.book_.emptied(id);  // matters if the host is leaving
  }
  void operator()(const worker_wrote& news) const {
    if (of.calls.output) of.calls.output(news.line);
  }
  void operator()(const worker_over& news) const {
    of.who.reset();
    process::output_tail tail;
    tail.append(news.last_output, {});
    if (const auto exited = std::exchange(of.calls, {}).exited) exited(news.report, tail);
    hub.book_.emptied(id);
  }
  void operator()(const host_goes&) const {
    hub.book_.leaving(id);
    if (!of.who) hub.book_.emptied(id);
  }
  void operator()(const batch_received& news) const {
    hub.book_.received(id, news.samples, news.bytes, now());
    hub.records_.received(of.card, news.samples, news.bytes);
  }
  void operator()(const batch_spoilt& news) const {
    hub.book_.spoilt(id, news.kind, news.how);
    hub.records_.refused(of.card, news.kind);
  }
  void operator()(const ping_answered& news) const {
    hub.book_.answered(id, news.round_trip);
    hub.records_.used(of.card, id, news.cpu, now());
  }
  void operator()(const connection_closed& news) const { hub.closed(id, news); }
};

void host_hub::hear(connection_id id, connection_news news) {
  const auto of = connections_.find(id);
  if (of == connections_.end()) return;
  std::visit(news_visitor{*this, id, of->second}, news);
  carry_out();
}

void host_hub::closed(connection_id id, const connection_closed& news) {
  book_.closed(id, news.why);
  carry_out();  // first, so that the supervisor learns why before it learns of the worker's end
  entry gone = std::move(connections_.at(id));
  connections_.erase(id);
  records_.closed(id);
  if (gone.then) {
    gone.then(refuse(errc::system, "its loader host is gone: {}", news.why));
  } else if (gone.who && gone.calls.exited) {
    process::exit_report report;
    report.ending = process::exit_report::how::signalled;
    report.code = SIGKILL;
    gone.calls.exited(report, {});
  }
  if (gone.caller && !gone.known) {
    gone.caller->gone(call_busy_after, news.why);
  } else if (gone.caller) {
    gone.caller->gone(news.refused ? call_refused_after : call_again_after, news.refused ? news.why : "");
  } else if (!news.refused && !gone.known && !all_closed_ && ++unknown_ <= unknown_logged) {
    log::warn("hosts", "a connection that wanted to join as a loader host was refused: {}{}", news.why,
              unknown_ == unknown_logged ? " (further ones are not logged)" : "");
  }
  if (!all_closed_) tell_refusal(gone, news);
  if (all_closed_ && connections_.empty()) all_closed_->set_value();
}

/// Tells the supervisor each time, but writes each host and reason only once: a host that is restarted again and
/// again must not fill the journal and the log.
void host_hub::tell_refusal(const entry& of, const connection_closed& news) {
  const bool unknown = !of.known && !of.caller && unknown_ <= unknown_logged;
  if (!news.refused && !unknown) return;
  const std::string who = news.host.empty() ? "a connection that wanted to join as a loader host" : "loader host " + news.host;
  const std::string text = fmt::format("{} was refused: {}", who, news.why);
  actors::tell(supervisor_, supervisor::host_refused{text});
  if (refusals_told_.size() >= refusals_remembered) refusals_told_.clear();
  if (!refusals_told_.insert(text).second) return;
  if (news.refused && !of.caller) log::warn("hosts", "{}", text);
  listener_(event_kind::host_refused, news.host, text);
}

// ---- decisions ----------------------------------------------------------------------------------------------

struct host_hub::command_visitor {
  host_hub& hub;

  void operator()(const occupy_place& order) const {
    actors::tell(hub.supervisor_, supervisor::host_place_joined{order.place});
  }
  void operator()(const rest_place& order) const {
    actors::tell(hub.supervisor_, supervisor::host_place_left{.worker = order.place, .rests = true});
  }
  void operator()(const vacate_place& order) const {
    actors::tell(hub.supervisor_, supervisor::host_place_left{.worker = order.place, .lost = order.lost});
  }
  void operator()(const close_connection& order) const {
    const auto of = hub.connections_.find(order.connection);
    if (of == hub.connections_.end()) return;
    if (order.why.empty()) return of->second.connection->order(say_goodbye{});
    of->second.connection->close_soon();
  }
  void operator()(const host_came& news) const {
    const std::string text =
        fmt::format("loader host {} has joined, with {}", text_of_card(news.card), counted(news.card.workers, "worker"));
    log::info("hosts", "{}", text);
    hub.records_.came(news.card);
    hub.listener_(event_kind::host_joined, news.card.name, text);
  }
  void operator()(const host_went& news) const {
    const bool left = !news.lost;
    const std::string who = "loader host " + text_of_card(news.card);
    hub.records_.went(news.card, hub.all_closed_ ? std::nullopt : news.lost, news.why, now());
    if (left || hub.all_closed_)
      log::info("hosts", "{} has left", who);
    else
      log::warn("hosts", "{} is lost: {}; other workers take over", who, news.why);
    if (!hub.all_closed_)
      hub.listener_(left ? event_kind::host_left : event_kind::host_lost, news.card.name,
                    left ? who + " has left" : fmt::format("{} is lost: {}", who, news.why));
    if (!hub.settings_.has_local_workers && !hub.all_closed_ && hub.book_.hosts(now()).empty()) hub.say_that_it_waits();
  }
};

void host_hub::carry_out() {
  for (const book_command& one : book_.advance(now())) std::visit(command_visitor{*this}, one);
}

// ---- for worker_processes -----------------------------------------------------------------------------------

/// The connection with this place; null if there is none, or the hub is shutting down.
const host_hub::entry* host_hub::entry_at(std::uint32_t place) const {
  const auto connection = book_.connection_at(place);
  const auto found = connection ? connections_.find(*connection) : connections_.end();
  return found == connections_.end() ? nullptr : &found->second;
}

bool host_hub::has(std::uint32_t worker) const {
  return worker >= settings_.book.first_place;
}

void host_hub::start(worker_ref who, process::child_callbacks calls,
                     std::function<void(result<supervisor::linked_child>)> then) {
  entry* const of = entry_at(who.worker);
  if (of == nullptr) return then(refuse(errc::system, "its loader host is gone"));
  of->who = who;
  of->calls = std::move(calls);
  of->then = std::move(then);
  of->connection->order(start_worker{});
}

void host_hub::signal(worker_ref who, int number) {
  entry* const of = entry_at(who.worker);
  if (of != nullptr && of->who == who) of->connection->order(signal_worker{number});
}

void host_hub::shut_down() {
  std::promise<void> closing;
  std::future<void> closed = closing.get_future();
  boost::asio::post(io_.context(), [this, &closing] {
    all_closed_ = std::move(closing);
    boost::system::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    accept_timer_.cancel();
    for (const auto& one : callers_) one->stop();
    for (auto& [id, one] : connections_) one.connection->order(say_goodbye{});
    if (connections_.empty()) all_closed_->set_value();
  });
  static_cast<void>(is_ready_within(closed, goodbye_deadline));
  std::promise<std::map<connection_id, entry>> rest;
  boost::asio::post(io_.context(), [this, &rest] {
    supervisor_ = supervisor::supervisor_actor();
    rest.set_value(std::exchange(connections_, {}));
  });
  rest.get_future().get().clear();
}

}  // namespace penstock::hosts
