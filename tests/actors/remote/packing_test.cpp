// Compressed batches arrive whole, damaged ones are detected, and wrong sizes end the connection.
#include "actors/remote/packing.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

constexpr auto in_time = 10s;

struct two_streams {
  std::array<int, 2> ends{};
  int made = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data());
  host_stream host{unique_fd(ends[0]), nullptr};
  host_stream session{unique_fd(ends[1]), nullptr};
};

/// Tokens of a small vocabulary, then incompressible bytes.
std::vector<std::byte> some_bytes(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    made[i] = static_cast<std::byte>(i < bytes / 2 ? (i % 2 == 0 ? (state >> 60U) : 0) : (state >> 50U));
  }
  return made;
}

std::vector<std::byte> packed_by(packer& with, const std::vector<std::byte>& bytes) {
  two_streams link;
  std::vector<std::byte> all;
  result<void> done;
  std::thread other([&] {
    done = send_packed(link.host, with, bytes, in_time, false);
    link.host.close_soon();
  });
  std::byte one{};
  while (link.session.read_raw(std::span(&one, 1), in_time)) all.push_back(one);
  other.join();
  CHECK(done);
  return all;
}

}  // namespace

TEST_CASE("any number of compressed bytes arrives whole") {
  for (const compress_rule how : {compress_rule::lz4, compress_rule::zstd}) {
    auto with = packer::open(how);
    REQUIRE(with);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, packed_at_once, packed_at_once + 1, std::size_t{3'000'000}}) {
      const auto sent = some_bytes(bytes);
      std::vector<std::byte> received(bytes);
      two_streams link;
      result<void> done;
      const bool digest = bytes % 2 == 1;
      std::thread other([&] { done = send_packed(link.host, **with, sent, in_time, digest); });
      auto there = packer::open(how);
      const auto damage = receive_packed(link.session, **there, received, in_time, digest);
      other.join();
      CHECK(done);
      REQUIRE(damage);
      CHECK(damage->empty());
      CHECK(received == sent);
    }
  }
}

TEST_CASE("incompressible data is sent unchanged, and other data takes fewer bytes") {
  for (const compress_rule how : {compress_rule::lz4, compress_rule::zstd}) {
    auto with = packer::open(how);
    const auto bytes = some_bytes(2'000'000);
    const std::size_t sent = packed_by(**with, bytes).size();
    CHECK(sent > 1'000'000);
    CHECK(sent < 1'800'000);
  }
}

TEST_CASE("unwanted bytes are skipped, and the bytes after them arrive") {
  auto with = packer::open(compress_rule::lz4);
  const auto bytes = some_bytes(1'000'000);
  std::vector<std::byte> received(bytes.size());
  two_streams link;
  result<void> done;
  std::thread other([&] {
    done = send_packed(link.host, **with, bytes, in_time, false);
    if (done) done = send_packed(link.host, **with, bytes, in_time, false);
  });
  CHECK(skip_packed(link.session, bytes.size(), in_time, false));
  auto there = packer::open(compress_rule::lz4);
  CHECK(receive_packed(link.session, **there, received, in_time, false).value().empty());
  other.join();
  CHECK(done);
  CHECK(received == bytes);
}

TEST_CASE("a damaged part is detected, and a part that claims too many bytes ends the connection") {
  for (const compress_rule how : {compress_rule::lz4, compress_rule::zstd}) {
    auto with = packer::open(how);
    const std::vector<std::byte> bytes(1000, std::byte{7});
    std::vector<std::byte> packed = packed_by(**with, bytes);
    std::vector<std::byte> room(bytes.size());
    std::fill(packed.begin() + 4, packed.end(), std::byte{0xee});
    two_streams link;
    REQUIRE(::write(link.host.socket(), packed.data(), packed.size()) == static_cast<ssize_t>(packed.size()));
    const auto damage = receive_packed(link.session, **with, room, in_time, false);
    REQUIRE(damage);
    CHECK(*damage == "they cannot be decompressed");
    const std::uint32_t too_much = 1001;
    REQUIRE(::write(link.host.socket(), &too_much, sizeof too_much) == sizeof too_much);
    const auto refused = receive_packed(link.session, **with, room, in_time, false);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::protocol);
  }
}
