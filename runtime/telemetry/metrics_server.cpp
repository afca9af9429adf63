#include "runtime/telemetry/metrics_server.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace penstock::telemetry {
namespace {

namespace http = boost::beast::http;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;

constexpr auto client_deadline = 5s;
constexpr std::size_t clients_max = 16;  // scrapers; memory: see metrics_server.hpp
// The request line and 15 headers of up to 512 bytes; scrapers send fewer and shorter ones.
constexpr std::uint32_t header_line_max = 512;
constexpr std::uint32_t header_bytes_max = (1 + 15) * header_line_max;

result<tcp::endpoint> endpoint_of(const std::string& listen) {
  const std::size_t colon = listen.rfind(':');
  std::string host = colon == std::string::npos ? std::string() : listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host == "localhost") host = "127.0.0.1";
  boost::system::error_code status;
  const auto address = boost::asio::ip::make_address(host, status);
  const auto port = whole_number<std::uint16_t>(std::string_view(listen).substr(colon == std::string::npos ? 0 : colon + 1));
  if (status || colon == std::string::npos || !port)
    return refuse(errc::config, "listening for metrics: '{}' is not an IP address and port, such as 127.0.0.1:9464", printable(listen));
  return tcp::endpoint(address, *port);
}

std::string text_of(const tcp::endpoint& where) {
  const std::string host = where.address().to_string();
  return where.address().is_v6() ? fmt::format("[{}]:{}", host, where.port()) : fmt::format("{}:{}", host, where.port());
}

http::response<http::string_body> answer(const http::request<http::empty_body>& asked,
                                         const std::function<std::string()>& page) {
  http::response<http::string_body> said(http::status::ok, asked.version());
  said.set(http::field::content_type, "text/plain; charset=utf-8");
  const std::string_view target(asked.target().data(), asked.target().size());
  if (asked.method() != http::verb::get && asked.method() != http::verb::head) {
    said.result(http::status::method_not_allowed);
    said.set(http::field::allow, "GET, HEAD");
    said.body() = "read-only: GET /metrics\n";
  } else if (target.substr(0, target.find('?')) == "/metrics") {
    said.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    said.body() = page();
  } else {
    said.result(http::status::not_found);
    said.body() = "there is only /metrics\n";
  }
  said.keep_alive(false);
  said.prepare_payload();
  if (asked.method() == http::verb::head) said.body().clear();
  return said;
}

}  // namespace

class metrics_server::listener : public std::enable_shared_from_this<listener> {
 public:
  listener(boost::asio::io_context& io, std::function<std::string()> page)
      : page_(std::move(page)), acceptor_(io) {}

  result<void> listen(const tcp::endpoint& where) {
    boost::system::error_code status;
    acceptor_.open(where.protocol(), status);
    if (!status) acceptor_.set_option(boost::asio::socket_base::reuse_address(true), status);
    if (!status) acceptor_.bind(where, status);
    if (!status) acceptor_.listen(static_cast<int>(clients_max), status);
    if (status)
      return refuse(errc::io, "listening on {} for metrics: {}", text_of(where), status.message());
    return {};
  }

  void accept() {
    if (closed_ || accepting_ || clients_ >= clients_max) return;
    accepting_ = true;
    acceptor_.async_accept(
        [self = shared_from_this()](const boost::system::error_code& status, tcp::socket peer) {
          self->accepting_ = false;
          if (self->closed_) return;
          if (!status) std::make_shared<client>(self, std::move(peer))->read();
          self->accept();
        });
  }

  void close() {
    closed_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

  [[nodiscard]] std::string address() const {
    boost::system::error_code ignored;
    const auto where = acceptor_.local_endpoint(ignored);
    return fmt::format("{}:{}", where.address().to_string(), where.port());
  }

 private:
  class client : public std::enable_shared_from_this<client> {
   public:
    client(std::shared_ptr<listener> owner, tcp::socket peer)
        : owner_(std::move(owner)), stream_(std::move(peer)) {
      ++owner_->clients_;
      parser_.header_limit(header_bytes_max);
      parser_.body_limit(0);
    }
    client(const client&) = delete;
    client& operator=(const client&) = delete;
    ~client() {
      --owner_->clients_;
      owner_->accept();
    }

    void read() {
      stream_.expires_after(client_deadline);
      http::async_read(stream_, buffer_, parser_,
                       [self = shared_from_this()](const boost::system::error_code& status, std::size_t) {
                         if (!status && !self->owner_->closed_) self->write();
                       });
    }

   private:
    void write() {
      said_ = answer(parser_.get(), owner_->page_);
      stream_.expires_after(client_deadline);
      http::async_write(stream_, said_,
                        [self = shared_from_this()](const boost::system::error_code&, std::size_t) {
                          boost::system::error_code ignored;
                          self->stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
                        });
    }

    std::shared_ptr<listener> owner_;
    boost::beast::tcp_stream stream_;
    boost::beast::flat_buffer buffer_{header_bytes_max};
    http::request_parser<http::empty_body> parser_;
    http::response<http::string_body> said_;
  };

  std::function<std::string()> page_;
  tcp::acceptor acceptor_;
  std::size_t clients_ = 0;
  bool accepting_ = false;
  bool closed_ = false;
};

metrics_server::metrics_server(std::shared_ptr<listener> l) : listener_(std::move(l)) {}

metrics_server::~metrics_server() {
  listener_->close();
}

result<std::unique_ptr<metrics_server>> metrics_server::open(boost::asio::io_context& io,
                                                             const std::string& listen,
                                                             std::function<std::string()> page) {
  const auto where = endpoint_of(listen);
  if (!where) return tl::unexpected(where.error());
  auto made = std::make_shared<listener>(io, std::move(page));
  if (auto ok = made->listen(*where); !ok) return tl::unexpected(std::move(ok.error()));
  made->accept();
  return std::unique_ptr<metrics_server>(new metrics_server(std::move(made)));
}

std::string metrics_server::address() const {
  return listener_->address();
}

}  // namespace penstock::telemetry
