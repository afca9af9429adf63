// The metrics endpoint: GET /metrics over HTTP, read-only, at the address of [metrics] listen. Off by default.
//
// A client has client_deadline to send its request, and the same time to read the answer. Requests have no body. Memory
// is bounded by clients_max x (header_bytes_max + one page); further clients wait in the backlog.
#pragma once

#include "runtime/base/result.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>

namespace penstock::telemetry {

class metrics_server {
 public:
  /// `listen`: HOST:PORT; HOST is an IP address, "localhost" or empty (loopback). Port 0: any. `page` is
  /// called on the io thread for each request and must not block. Construct, use and destroy on
  /// the io thread, or while the io thread is not running. Refuses with errc::io when the
  /// address is invalid or in use.
  static result<std::unique_ptr<metrics_server>> open(boost::asio::io_context& io, const std::string& listen,
                                                      std::function<std::string()> page);
  ~metrics_server();
  metrics_server(const metrics_server&) = delete;
  metrics_server& operator=(const metrics_server&) = delete;

  /// "127.0.0.1:9464".
  [[nodiscard]] std::string address() const;

 private:
  class listener;
  explicit metrics_server(std::shared_ptr<listener> l);
  std::shared_ptr<listener> listener_;
};

}  // namespace penstock::telemetry
