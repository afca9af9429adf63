// An object of a store, on a small server of this test.
#include "runtime/storage/object_store.hpp"

#include <arpa/inet.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

using namespace penstock;

namespace {

constexpr std::uint64_t object_bytes = 1'000'000;

std::byte byte_at(std::uint64_t at) {
  return static_cast<std::byte>((at * 131 + at / 251) & 0xffU);
}

/// Answers ranges of one object.
class server {
 public:
  server() : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ::sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::socklen_t size = sizeof address;
    REQUIRE(::bind(listening_, reinterpret_cast<::sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listening_, 64) == 0);
    REQUIRE(::getsockname(listening_, reinterpret_cast<::sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~server() {
    ::shutdown(listening_, SHUT_RDWR);
    thread_.join();
    ::close(listening_);
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  std::uint16_t port = 0;
  std::atomic<int> answered = 0;
  std::atomic<bool> damages = false;  ///< damages the answers to all requests from now on

 private:
  void run() {
    for (int connection = -1; (connection = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; ::close(connection)) {
      std::string request;
      char more[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::recv(connection, more, sizeof more, 0);
        if (got <= 0) break;
        request.append(more, static_cast<std::size_t>(got));
      }
      const std::size_t range = request.find("Range: bytes=");
      unsigned long long first = 0;
      unsigned long long last = 0;
      if (range == std::string::npos || std::sscanf(request.c_str() + range, "Range: bytes=%llu-%llu", &first, &last) != 2) continue;
      std::string answer = fmt::format(
          "HTTP/1.1 206 Partial Content\r\nConnection: close\r\nETag: \"v1\"\r\nContent-Length: {}\r\nContent-Range: bytes {}-{}/{}\r\n\r\n",
          last + 1 - first, first, last, object_bytes);
      for (auto at = first; at <= last; ++at) answer += static_cast<char>(damages ? ~byte_at(at) : byte_at(at));
      static_cast<void>(::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL));
      ++answered;
      answered.notify_all();
    }
  }

  int listening_;
  std::thread thread_;
};

struct stored {
  std::shared_ptr<object_store> store;
  std::shared_ptr<remote_object> object;

  /// Requests, without those that are repeated because the machine is busy.
  [[nodiscard]] std::uint64_t requests() const {
    const transfer_counts sent = store->counts();
    return sent.attempts - sent.hedges - sent.retries;
  }
};

stored object_on(const server& at, nanoseconds unread_for) {
  store_options options;
  options.unread_for = unread_for;
  auto store = object_store::open(options);
  if (!store) SKIP("no libcurl: " + store.error().message);
  auto object = (*store)->object(fmt::format("http://127.0.0.1:{}/x", at.port), {object_bytes, "\"v1\""});
  return {std::move(*store), std::move(object)};
}

void read(remote_object& object, byte_range range) {
  std::vector<std::byte> into(range.bytes);
  REQUIRE(object.read(range.at, into));
  for (std::uint64_t i = 0; i < range.bytes; ++i) REQUIRE(into[i] == byte_at(range.at + i));
}

}  // namespace

TEST_CASE("announced ranges are requested once, whatever their order and number") {
  server there;
  const stored here = object_on(there, std::chrono::minutes(10));
  std::vector<byte_range> ranges;
  for (std::uint64_t i = 0; i < 3; ++i) ranges.push_back({i * 200'000, 1000});
  ranges.push_back({410'000, 5000});  // fetched with its neighbour
  ranges.push_back({600'000, 300'000});
  here.object->expect(ranges);
  here.object->expect({{600'100, 10}, {950'000, 50'000}});
  read(*here.object, {950'000, 50'000});
  read(*here.object, {600'000, 300'000});
  read(*here.object, {600'100, 10});
  read(*here.object, {410'000, 5000});
  read(*here.object, {0, 1000});
  read(*here.object, {200'000, 1000});
  read(*here.object, {400'000, 1000});
  CHECK(here.requests() == 6);
  read(*here.object, {0, 1000});  // this range was announced only once
  CHECK(here.requests() == 7);
}

TEST_CASE("a range that was announced twice is read from the earlier request first") {
  server there;
  const stored here = object_on(there, std::chrono::minutes(10));
  here.object->expect({{0, 1000}});
  there.answered.wait(0);
  there.damages = true;
  here.object->expect({{0, 1000}});
  read(*here.object, {0, 1000});
}

TEST_CASE(
    "an announced range that is not read in time is forgotten, and requested again if it is read after all") {
  server there;
  const stored here = object_on(there, nanoseconds(0));
  here.object->expect({{0, 1000}});
  read(*here.object, {0, 1000});
  CHECK(here.requests() == 1);
  here.object->expect({{200'000, 1000}});
  here.object->expect({{400'000, 1000}});  // by now the previous one is old
  read(*here.object, {400'000, 1000});
  read(*here.object, {200'000, 1000});
  CHECK(here.requests() == 4);
}

TEST_CASE("dropping an announced range frees its piece, and does not affect its neighbours") {
  server there;
  const stored here = object_on(there, std::chrono::minutes(10));
  const byte_range first{0, 1000};
  const byte_range second{1000, 1000};
  const byte_range third{2000, 1000};
  here.object->expect({first, second, third});
  read(*here.object, first);
  for (int i = 0; i < 5; ++i) here.object->drop(first);  // was read
  here.object->drop({500'000, 10});                      // this range was not expected
  read(*here.object, second);
  CHECK(here.requests() == 1);
  here.object->drop(third);
  read(*here.object, third);  // the piece has been freed
  CHECK(here.requests() == 2);
}
