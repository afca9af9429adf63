#include "actors/group/wires.hpp"

#include <boost/asio/post.hpp>
#include <caf/send.hpp>
#include <fmt/core.h>

#include <optional>

namespace penstock::group {
namespace {

/// Its data members are used on the io thread alone.
class asio_member_wire final : public member_wire, public std::enable_shared_from_this<asio_member_wire> {
 public:
  asio_member_wire(process::io_thread& io, member_actor actor)
      : io_(io.context()), actor_(std::move(actor)) {}

  void open(link_settings settings, std::shared_ptr<newest_order> orders) {
    boost::asio::post(io_, [self = shared_from_this(), settings = std::move(settings), orders] {
      if (self->actor_) self->connect(settings, orders);
    });
  }
  void send(member_report report) override {
    boost::asio::post(io_, [self = shared_from_this(), report = std::move(report)] {
      if (!self->link_) return;
      if (auto ok = self->link_->send(report); !ok) self->tell(links_refused{ok.error()});
    });
  }
  void stop() override {
    boost::asio::post(io_, [self = shared_from_this()] {
      self->link_.reset();
      self->actor_ = member_actor();
    });
  }

 private:
  template <class Message>
  void tell(Message what) {
    if (actor_) caf::anon_send(actor_, std::move(what));
  }
  void connect(const link_settings& settings, const std::shared_ptr<newest_order>& orders) {
    member_link::callbacks calls;
    calls.order = [this, orders](group_order order) {
      if (orders->put(0, std::move(order))) tell(orders_arrived{});
    };
    calls.connected = [this] { tell(link_made{}); };
    calls.disconnected = [this](const std::string& why) { tell(link_lost{why}); };
    calls.coordinator_ended = [this] { tell(coordinator_ended{}); };
    auto made = member_link::make(io_, settings, std::move(calls));
    if (!made) return tell(links_refused{made.error()});
    link_ = std::move(*made);
  }

  boost::asio::io_context& io_;
  member_actor actor_;
  std::unique_ptr<member_link> link_;
};

class asio_coordinator_wire final : public coordinator_wire,
                                    public std::enable_shared_from_this<asio_coordinator_wire> {
 public:
  asio_coordinator_wire(process::io_thread& io, coordinator_actor actor)
      : io_(io.context()), actor_(std::move(actor)) {}

  void open(link_settings settings, std::shared_ptr<newest_reports> reports) {
    boost::asio::post(io_, [self = shared_from_this(), settings = std::move(settings), reports] {
      if (self->actor_) self->listen(settings, reports);
    });
  }
  void send(link_id to, group_order order) override {
    boost::asio::post(io_, [self = shared_from_this(), to, order = std::move(order)] {
      if (self->listener_) self->listener_->send(to, order);
    });
  }
  void stop() override {
    boost::asio::post(io_, [self = shared_from_this()] {
      self->listener_.reset();
      self->actor_ = coordinator_actor();
    });
  }

 private:
  template <class Message>
  void tell(Message what) {
    if (actor_) caf::anon_send(actor_, std::move(what));
  }
  void listen(const link_settings& settings, const std::shared_ptr<newest_reports>& reports) {
    coordinator_listener::callbacks calls;
    calls.report = [this, reports](link_id from, member_report report) {
      if (reports->put(from, std::move(report))) tell(reports_arrived{});
    };
    calls.closed = [this](link_id link, const std::string&) { tell(member_closed{link}); };
    calls.process_ended = [this](link_id link) { tell(member_process_ended{link}); };
    calls.listening = [this](const std::string& where) { tell(address_taken{where}); };
    calls.not_listening = [this](const std::string& why) { tell(address_refused{why}); };
    calls.stranger = [this](const stranger_news& news) {
      tell(stranger_came{fmt::format("{} ({}): {}{}", news.peer, name_of(news.kind), news.text,
                                     news.count > 1 ? fmt::format(" (x{})", news.count) : "")});
    };
    auto made = coordinator_listener::make(io_, settings, std::move(calls));
    if (!made) return tell(links_refused{made.error()});
    listener_ = std::move(*made);
  }

  boost::asio::io_context& io_;
  coordinator_actor actor_;
  std::unique_ptr<coordinator_listener> listener_;
};

}  // namespace

std::shared_ptr<member_wire> open_member_wire(process::io_thread& io, link_settings settings,
                                              std::shared_ptr<newest_order> orders, member_actor actor) {
  auto wire = std::make_shared<asio_member_wire>(io, std::move(actor));
  wire->open(std::move(settings), std::move(orders));
  return wire;
}

std::shared_ptr<coordinator_wire> open_coordinator_wire(process::io_thread& io, link_settings settings,
                                                        std::shared_ptr<newest_reports> reports,
                                                        coordinator_actor actor) {
  auto wire = std::make_shared<asio_coordinator_wire>(io, std::move(actor));
  wire->open(std::move(settings), std::move(reports));
  return wire;
}

}  // namespace penstock::group
