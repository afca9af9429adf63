#include "actors/group/wires.hpp"

#include "actors/caf/caf.hpp"

#include <boost/asio/post.hpp>

namespace penstock::group {
namespace {

/// The common part of both wires. The io thread owns the link; until stop(), the actor gets its events.
template <class Wire, class Actor, class Link>
class asio_wire : public Wire, public std::enable_shared_from_this<asio_wire<Wire, Actor, Link>> {
 public:
  asio_wire(process::io_thread& io, Actor actor) : io_(io.context()), actor_(std::move(actor)) {}

  void stop() final {
    on_io([this] {
      link_.reset();
      actor_ = Actor();
    });
  }

 protected:
  /// `act` may use this object and keeps it alive.
  template <class Act>
  void on_io(Act act) {
    boost::asio::post(io_, [self = this->shared_from_this(), act = std::move(act)]() mutable { act(); });
  }

  // On the io thread.
  [[nodiscard]] boost::asio::io_context& io() noexcept { return io_; }
  [[nodiscard]] bool stopped() const { return !actor_; }
  [[nodiscard]] Link* link() const noexcept { return link_.get(); }
  template <class Message>
  void tell(Message what) {
    if (actor_) actors::tell(actor_, std::move(what));
  }
  void keep(result<std::unique_ptr<Link>> made) {
    if (!made) return tell(links_refused{made.error()});
    link_ = std::move(*made);
  }

 private:
  boost::asio::io_context& io_;
  Actor actor_;
  std::unique_ptr<Link> link_;
};

class asio_member_wire final : public asio_wire<member_wire, member_actor, member_link> {
 public:
  using asio_wire::asio_wire;

  void open(link_settings settings, std::shared_ptr<newest_order> orders) {
    on_io([this, settings = std::move(settings), orders = std::move(orders)] {
      if (!stopped()) connect(settings, orders);
    });
  }
  void send(member_report report) override {
    on_io([this, report = std::move(report)] {
      if (link() == nullptr) return;
      if (auto ok = link()->send(report); !ok) tell(links_refused{ok.error()});
    });
  }

 private:
  void connect(const link_settings& settings, const std::shared_ptr<newest_order>& orders) {
    member_link::callbacks calls;
    calls.order = [this, orders](group_order order) {
      if (orders->put(0, std::move(order))) tell(orders_arrived{});
    };
    calls.connected = [this] { tell(link_made{}); };
    calls.disconnected = [this](const link_trouble& trouble) {
      tell(link_lost{trouble.why, trouble.closed});
    };
    calls.coordinator_ended = [this] { tell(coordinator_ended{}); };
    calls.coordinator_held = [this] { tell(coordinator_held{}); };
    keep(member_link::make(io(), settings, std::move(calls)));
  }
};

class asio_coordinator_wire final
    : public asio_wire<coordinator_wire, coordinator_actor, coordinator_listener> {
 public:
  using asio_wire::asio_wire;

  void open(link_settings settings, std::shared_ptr<newest_reports> reports) {
    on_io([this, settings = std::move(settings), reports = std::move(reports)] {
      if (!stopped()) listen(settings, reports);
    });
  }
  void send(link_id to, group_order order) override {
    on_io([this, to, order = std::move(order)] {
      if (link() != nullptr) link()->send(to, order);
    });
  }

 private:
  void listen(const link_settings& settings, const std::shared_ptr<newest_reports>& reports) {
    coordinator_listener::callbacks calls;
    calls.report = [this, reports](link_id from, member_report report) {
      if (reports->put(from, std::move(report))) tell(reports_arrived{});
    };
    calls.closed = [this](link_id link, const std::string&) { tell(member_closed{link}); };
    calls.process_ended = [this](link_id link) { tell(member_process_ended{link}); };
    calls.held = [this](link_id link) { tell(member_held{link}); };
    calls.listening = [this](const std::string& where) { tell(address_taken{where}); };
    calls.not_listening = [this](const std::string& why) { tell(address_refused{why}); };
    calls.unknown_peer = [this](const unknown_peer_news& news) { tell(unknown_peer_came{text_of(news)}); };
    keep(coordinator_listener::make(io(), settings, std::move(calls)));
  }
};

/// `known`: what the wire needs to open its link.
template <class Wire, class Actor, class Known>
std::shared_ptr<Wire> opened(process::io_thread& io, link_settings settings, Known known, Actor actor) {
  auto wire = std::make_shared<Wire>(io, std::move(actor));
  wire->open(std::move(settings), std::move(known));
  return wire;
}

}  // namespace

std::shared_ptr<member_wire> open_member_wire(process::io_thread& io, link_settings settings,
                                              std::shared_ptr<newest_order> orders, member_actor actor) {
  return opened<asio_member_wire>(io, std::move(settings), std::move(orders), std::move(actor));
}

std::shared_ptr<coordinator_wire> open_coordinator_wire(process::io_thread& io, link_settings settings,
                                                        std::shared_ptr<newest_reports> reports,
                                                        coordinator_actor actor) {
  return opened<asio_coordinator_wire>(io, std::move(settings), std::move(reports), std::move(actor));
}

}  // namespace penstock::group
