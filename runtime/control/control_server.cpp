#include "runtime/control/control_server.hpp"

#include "runtime/base/exit_codes.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

namespace penstock::control {
namespace {

using namespace std::chrono_literals;
using boost::asio::local::stream_protocol;
using json = nlohmann::ordered_json;

constexpr auto late_look = 1s;
constexpr auto request_deadline = 10s;  // how long a client may take to send a whole line, and again to read the answer
constexpr auto ask_again_after = 20ms;
constexpr std::size_t connections_max = 64;  // bounds memory, because each has up to request_bytes_max and one answer

bool same_user(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

json good_answer(json result) {
  return {{"ok", true}, {"result", std::move(result)}};
}

json refusal(int exit_code, const std::string& kind, const std::string& message) {
  return {{"ok", false}, {"exit", exit_code}, {"error", {{"kind", kind}, {"message", message}}}};
}

class control_server::listener : public std::enable_shared_from_this<listener> {
 public:
  listener(boost::asio::io_context& io, bound_socket socket, request_handler handler)
      : io_(io),
        path_(std::move(socket.path)),
        handler_(std::move(handler)),
        acceptor_(io, stream_protocol(), socket.listener.release()) {
    struct stat facts {};
    if (::stat(path_.c_str(), &facts) == 0) inode_ = facts.st_ino;
  }

  void accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](const boost::system::error_code& status, stream_protocol::socket peer) {
          if (status == boost::asio::error::operation_aborted || self->closed_) return;
          if (!status && same_user(peer.native_handle())) {
            if (self->connections_.size() >= connections_max) self->end_the_quietest();
            const auto made = std::make_shared<connection>(*self, std::move(peer));
            self->connections_.insert(made);
            made->read();
          }
          self->accept();
        });
  }

  void close() {
    if (std::exchange(closed_, true)) return;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    const auto all = connections_;
    for (const auto& c : all) c->last_call();
    connections_.clear();
    struct stat facts {};
    if (::stat(path_.c_str(), &facts) == 0 && facts.st_ino == inode_) remove_session_socket(path_);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  /// Makes room for a new connection: drops the one that has been quiet longest, preferring connections that
  /// never sent a request. This way, stalling clients cannot lock operators out.
  void end_the_quietest() {
    const auto quietest = std::ranges::min_element(
        connections_, {}, [](const auto& c) { return std::pair(c->asked_anything(), c->last_heard()); });
    if (quietest != connections_.end()) std::shared_ptr<connection>(*quietest)->end();
  }

  class connection : public std::enable_shared_from_this<connection> {
   public:
    connection(listener& owner, stream_protocol::socket peer)
        : owner_(owner), peer_(std::move(peer)), timer_(owner.io_) {}

    void read() {
      expect_progress();
      boost::asio::async_read_until(
          peer_, boost::asio::dynamic_buffer(received_, request_bytes_max), '\n',
          [self = shared_from_this()](const boost::system::error_code& status, std::size_t bytes) {
            self->timer_.cancel();
            if (self->over_) return;
            if (status == boost::asio::error::not_found) {
              return self->reply(refusal(exit_codes::refused, "protocol", "the request is too long"), true);
            }
            if (status) return self->end();
            self->take(bytes);
          });
    }

    [[nodiscard]] bool asked_anything() const { return asked_anything_; }
    [[nodiscard]] std::chrono::steady_clock::time_point last_heard() const { return last_heard_; }

    void end() {
      if (std::exchange(over_, true)) return;
      timer_.cancel();
      boost::system::error_code ignored;
      peer_.close(ignored);
      owner_.connections_.erase(shared_from_this());
    }

    /// The session ends, so waiting clients get their answer.
    void last_call() {
      if (over_) return;
      if (waiting_) {
        if (const auto said = owner_.handler_(*waiting_, true)) {
          const std::string line = said->dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
          boost::system::error_code ignored;
          peer_.non_blocking(true, ignored);
          boost::asio::write(peer_, boost::asio::buffer(line), ignored);
        }
      }
      end();
    }

   private:
    void take(std::size_t bytes) {
      const std::string line = received_.substr(0, bytes);
      received_.erase(0, bytes);
      const json request = json::parse(line, nullptr, false);
      if (request.is_discarded() || !request.is_object()) {
        return reply(refusal(exit_codes::refused, "protocol", "the request is not a JSON object"), true);
      }
      const auto version = request.value("penstock", json());
      if (version != protocol_version) {
        return reply(refusal(exit_codes::refused, "protocol",
                             "this session speaks control protocol " + std::to_string(protocol_version)),
                     true);
      }
      asked_anything_ = true;
      last_heard_ = std::chrono::steady_clock::now();
      ask(request);
    }

    void ask(const json& request) {
      auto said = owner_.handler_(request, false);
      if (said) {
        waiting_.reset();
        return reply(*said, false);
      }
      waiting_ = request;
      timer_.expires_after(ask_again_after);
      timer_.async_wait([self = shared_from_this()](const boost::system::error_code& status) {
        if (!status && !self->over_) self->ask(json(*self->waiting_));
      });
    }

    void reply(const json& what, bool then_end) {
      answer_ = what.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
      expect_progress();
      boost::asio::async_write(
          peer_, boost::asio::buffer(answer_),
          [self = shared_from_this(), then_end](const boost::system::error_code& status, std::size_t) {
            self->timer_.cancel();
            if (self->over_) return;
            if (status || then_end) return self->end();
            self->read();
          });
    }

    void expect_progress() {
      timer_.expires_after(request_deadline);
      timer_.async_wait([self = shared_from_this()](const boost::system::error_code& status) {
        const auto late = std::chrono::steady_clock::now() - self->timer_.expiry();
        // The timer was set again after this wait ended, because there was progress.
        if (status || self->over_ || late < 0s) return;
        // This thread did not run for a while, and has not read yet what the client sent meanwhile.
        if (late > late_look) return self->expect_progress();
        self->end();
      });
    }

    listener& owner_;  // outlives this connection, because it closes its connections first
    stream_protocol::socket peer_;
    boost::asio::steady_timer timer_;
    std::string received_;  // at most request_bytes_max
    std::optional<json> waiting_;
    std::string answer_;
    std::chrono::steady_clock::time_point last_heard_ = std::chrono::steady_clock::now();
    bool asked_anything_ = false;
    bool over_ = false;
  };

  boost::asio::io_context& io_;
  std::filesystem::path path_;
  request_handler handler_;
  stream_protocol::acceptor acceptor_;
  std::set<std::shared_ptr<connection>> connections_;
  ino_t inode_ = 0;
  bool closed_ = false;
};

control_server::control_server(boost::asio::io_context& io, bound_socket socket, request_handler handler)
    : listener_(std::make_shared<listener>(io, std::move(socket), std::move(handler))) {
  listener_->accept();
}

control_server::~control_server() {
  listener_->close();
}

void control_server::close() {
  listener_->close();
}

const std::filesystem::path& control_server::path() const noexcept {
  return listener_->path();
}

}  // namespace penstock::control
