// Both ends of a connection in one process, and invalid data that a peer may send.
#include "actors/remote/host_stream.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

constexpr auto soon = 10s;

std::pair<unique_fd, unique_fd> two_sockets() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {unique_fd(ends[0]), unique_fd(ends[1])};
}

std::shared_ptr<const group::tls_context> tls_of(group::tls_role role, const char* secret, const char* identity = "penstock hosts") {
  auto made = group::tls_context::make(role, identity, secret);
  REQUIRE(made);
  return std::move(*made);
}

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 + i / 251);
  return made;
}

/// A batch of 5 MB between messages, in both directions at once.
void exchange(host_stream& host, host_stream& session) {
  const auto sent = pattern(5'000'000);
  std::vector<std::byte> received(sent.size());
  std::string trouble;
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) host.put(from_host(pong{static_cast<std::uint64_t>(i)}));
    host.put(from_host(batch_follows{.slot = 1, .bytes = sent.size(), .report = {}}));
    if (auto ok = host.flush(soon, sent, true); !ok) trouble = ok.error().message;
    host.put(from_host(host_leaves{}));
    if (auto ok = host.flush(soon); !ok) trouble = ok.error().message;
    const auto lease = host.wait_for<to_host>(soon);
    if (!lease || !std::holds_alternative<to_place>(*lease)) trouble = "no lease";
  });
  session.put(to_host(to_place{std::string(3'000'000, 'x')}));
  CHECK(session.flush(soon));
  bool left = false;
  while (!left) {
    const auto message = session.wait_for<from_host>(soon);
    REQUIRE(message);
    if (const auto* batch = std::get_if<batch_follows>(&*message)) {
      REQUIRE(batch->bytes == received.size());
      CHECK(session.read_checked(received, soon, true).value().empty());
    }
    left = std::holds_alternative<host_leaves>(*message);
  }
  other.join();
  CHECK(trouble.empty());
  CHECK(received == sent);
}

// ---- a clock that the test advances ----

nanoseconds passed{0};

steady_time test_time() {
  return steady_time(1h) + passed;
}

void write_to(int socket, std::size_t bytes) {
  const std::string some(bytes, 'x');
  REQUIRE(::write(socket, some.data(), bytes) == static_cast<ssize_t>(bytes));
}

}  // namespace

TEST_CASE("messages and batches arrive whole, even while both sides send") {
  auto [one, two] = two_sockets();
  host_stream host(std::move(one), nullptr);
  host_stream session(std::move(two), nullptr);
  exchange(host, session);
}

TEST_CASE("messages and batches with a secret arrive whole, even while both sides send") {
  auto [one, two] = two_sockets();
  host_stream host(std::move(one), tls_of(group::tls_role::client, "a secret of the hosts"));
  host_stream session(std::move(two), tls_of(group::tls_role::server, "a secret of the hosts"));
  result<void> greeted;
  std::thread other([&] { greeted = host.secure(soon); });
  CHECK(session.secure(soon));
  other.join();
  REQUIRE(greeted);
  exchange(host, session);
}

TEST_CASE("with different secrets the connection fails on both sides") {
  auto [one, two] = two_sockets();
  host_stream host(std::move(one), tls_of(group::tls_role::client, "a secret of the hosts"));
  host_stream session(std::move(two), tls_of(group::tls_role::server, "another secret of hosts"));
  result<void> greeted;
  std::thread other([&] { greeted = host.secure(soon); });
  CHECK_FALSE(session.secure(soon));
  other.join();
  REQUIRE_FALSE(greeted);
  CHECK(greeted.error().code == errc::config);
}

TEST_CASE("if a host and a group connect by mistake, each side's error names what it expected, even with the same secret") {
  constexpr const char* group_identity = "penstock/train";
  constexpr const char* hosts_identity = "penstock hosts";
  const bool host_calls = GENERATE(true, false);
  const char* const of_client = host_calls ? hosts_identity : group_identity;
  const char* const of_server = host_calls ? group_identity : hosts_identity;
  auto [one, two] = two_sockets();
  host_stream client(std::move(one), tls_of(group::tls_role::client, "the secret of both", of_client));
  host_stream server(std::move(two), tls_of(group::tls_role::server, "the secret of both", of_server));
  result<void> greeted;
  std::thread other([&] { greeted = client.secure(soon); });
  const auto answered = server.secure(soon);
  other.join();
  REQUIRE_FALSE(answered);
  REQUIRE_FALSE(greeted);
  CHECK(answered.error().message == fmt::format("it wants '{}', but this is '{}'", of_client, of_server));
  CHECK(greeted.error().message == fmt::format("it is not '{}', or does not know this secret", of_client));
  CHECK(greeted.error().code == errc::config);
}

TEST_CASE("if only one side has a secret, each side says which") {
  const auto role = GENERATE(group::tls_role::client, group::tls_role::server);
  auto [one, two] = two_sockets();
  host_stream with(std::move(one), tls_of(role, "a secret of the hosts"));
  host_stream without(std::move(two), nullptr);
  result<void> greeted;
  std::thread other([&] { greeted = with.secure(soon); });
  if (role == group::tls_role::server) {  // a client speaks first
    without.put(from_host(host_leaves{}));
    CHECK(without.flush(soon));
  }
  const auto message = role == group::tls_role::server ? without.wait_for<to_host>(soon).error() : without.wait_for<from_host>(soon).error();
  other.join();
  REQUIRE_FALSE(greeted);
  CHECK(message.code == errc::config);
  CHECK(message.message.starts_with("it has a secret, and this side has none: both need the same one, or neither"));
  CHECK(greeted.error().code == errc::config);
  CHECK(greeted.error().message.starts_with("it has no secret, and this side has one: both need the same one, or neither"));
}

TEST_CASE("garbage, an overlong message and silence each end a connection") {
  const auto answer_to = [](std::string_view bytes, std::size_t limit) {
    auto [one, two] = two_sockets();
    host_stream session(std::move(two), nullptr);
    session.limit(limit);
    REQUIRE(::write(one.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    const auto first = session.wait_for<from_host>(100ms);
    REQUIRE_FALSE(first);
    return first.error().message;
  };
  CHECK(answer_to("GET / HTTP/1.1\r\n\r\n", 4096).find("at most 4096 are allowed") != std::string::npos);
  CHECK(answer_to(std::string_view("\4\0\0\0\143\0\0\0abcd", 12), 4096) == "unknown message type 99");
  CHECK(answer_to(std::string_view("\4\0\0\0\0\0\0\0abcd", 12), 4096).find("corrupt") != std::string::npos);
  CHECK(answer_to("", 4096) == "it sent nothing in time");
}

TEST_CASE("a thread that waits for a batch is woken by the end of its connection") {
  auto [one, two] = two_sockets();
  host_stream session(std::move(two), nullptr);
  std::vector<std::byte> room(100);
  std::thread other([&] { session.close_soon(); });
  CHECK_FALSE(session.read_raw(room, 60s));
  other.join();
}

// ---- time ------------------------------------------------------------------------------------------------------

TEST_CASE("a thread that was suspended for an hour does not blame its peer for silence") {
  auto [one, two] = two_sockets();
  host_stream session(std::move(two), nullptr, &test_time);
  int calls = 0;
  std::function<void()> then = [] {};
  session.while_busy([&] {
    passed += 1h;
    if (++calls == 3) then();
  });
  std::vector<std::byte> room(100);
  SECTION("while it waits for bytes") {
    then = [&] { write_to(one.get(), room.size()); };
    CHECK(session.read_raw(room, 80ms));
  }
  SECTION("while it waits for a message") {
    host_stream host(std::move(one), nullptr);
    then = [&] {
      host.put(from_host(host_leaves{}));
      REQUIRE(host.flush(soon));
    };
    CHECK(session.wait_for<from_host>(80ms));
  }
  SECTION("while its peer takes nothing") {
    const auto batch = pattern(5'000'000);
    std::size_t taken = 0;
    std::vector<char> some(1'000'000);
    session.while_busy([&] {
      passed += 1h;
      if (++calls % 3 != 0) return;
      while (true) {
        const ssize_t got = ::read(one.get(), some.data(), some.size());
        if (got <= 0) break;
        taken += static_cast<std::size_t>(got);
      }
    });
    CHECK(session.flush(80ms, batch));
    CHECK(taken > 0);
  }
}

TEST_CASE("a peer that is silent while this thread runs counts as silent") {
  auto [one, two] = two_sockets();
  host_stream session(std::move(two), nullptr, &test_time);
  const nanoseconds before = passed;
  session.while_busy([] { passed += 5ms; });
  std::vector<std::byte> room(100);
  const auto read = session.read_raw(room, 80ms);
  REQUIRE_FALSE(read);
  CHECK(read.error().message == "it was silent for 80 ms");
  CHECK(passed - before < 200ms);
}

TEST_CASE("slow bytes do not count as silence, not even parts of one TLS record") {
  const bool encrypted = GENERATE(false, true);
  auto [near, relay_in] = two_sockets();
  auto [relay_out, far] = two_sockets();
  host_stream host(std::move(near), encrypted ? tls_of(group::tls_role::client, "a secret of the hosts") : nullptr);
  host_stream session(std::move(far), encrypted ? tls_of(group::tls_role::server, "a secret of the hosts") : nullptr, &test_time);
  std::array<char, 16> some{};
  const auto pass_on = [&](int from, int to) {
    const ssize_t got = ::read(from, some.data(), some.size());
    if (got > 0) REQUIRE(::write(to, some.data(), static_cast<std::size_t>(got)) == got);
    return got > 0;
  };
  if (encrypted) {
    std::atomic<bool> secured = false;
    result<void> greeted;
    std::thread other([&] { greeted = host.secure(soon); });
    std::thread relay([&] {
      while (!secured) {
        pass_on(relay_in.get(), relay_out.get());
        pass_on(relay_out.get(), relay_in.get());
      }
    });
    CHECK(session.secure(soon));
    other.join();
    secured = true;
    relay.join();
    CHECK(greeted);
  }
  const auto sent = pattern(2000);
  REQUIRE(host.flush(soon, sent));
  const nanoseconds before = passed;
  int calls = 0;
  session.while_busy([&] {
    passed += 1ms;
    if (++calls % 6 == 0) pass_on(relay_in.get(), relay_out.get());
  });
  std::vector<std::byte> received(sent.size());
  CHECK(session.read_raw(received, 16ms));
  CHECK(received == sent);
  CHECK(passed - before > 160ms);
}

TEST_CASE("a side that receives for a long time still shows that it is alive") {
  auto [one, two] = two_sockets();
  host_stream session(std::move(two), nullptr, &test_time);
  int calls = 0;
  session.while_busy([&] {
    passed += 2ms;
    if (++calls % 2 == 0) write_to(one.get(), 1);
  });
  session.while_receiving(10ms, [&] { session.put(to_host(ping{})); });
  std::vector<std::byte> room(100);
  const nanoseconds before = passed;
  REQUIRE(session.read_raw(room, 16ms));
  host_stream host(std::move(one), nullptr);
  int heard = 0;
  while (host.wait_for<to_host>(20ms)) ++heard;
  CHECK(heard >= (passed - before) / 20ms);
  CHECK(heard > 4);
}
