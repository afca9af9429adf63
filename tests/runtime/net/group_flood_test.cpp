// Thousands of unknown peers at a group's address: CMakeLists.txt sets PENSTOCK_UNKNOWN_PEERS.
#include "runtime/net/tls/tls_stream.hpp"
#include "tests/runtime/net/group_over_links.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>

#include <atomic>
#include <deque>
#include <fstream>
#include <thread>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr auto soon = 10s;  // AddressSanitizer makes everything several times as slow
#else
constexpr auto soon = 2s;
#endif

constexpr std::size_t peers = PENSTOCK_UNKNOWN_PEERS;

/// How many connections this process may keep open.
std::size_t descriptors() {
  ::rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur / 2;
}

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    std::size_t kib = 0;
    status >> kib;
    return kib;
  }
  return 0;
}

std::string first_words(const std::string& secret) {
  std::string words;
  tls_stream(tls_context::make(tls_role::client, "penstock/job7/train", secret).value()).take(words);
  return words;
}

/// The first message of an unknown peer.
std::vector<std::string> words_of_all_kinds(const link_settings& at) {
  const std::string repeated = first_words(at.secret->bytes);  // a hello that was recorded, and is replayed
  return {"GET / HTTP/1.1\r\n\r\n", "\x16", "", first_words("another secret, longer than sixteen bytes"),
          repeated};
}

/// Connects unknown peers from a separate thread, as fast as possible. Keeps as many connections open as allowed.
class flood {
 public:
  flood(const link_settings& at, std::size_t how_many, std::vector<std::string> words)
      : thread_([this, at, how_many, words = std::move(words)] { run(at, how_many, words); }) {}
  flood(const flood&) = delete;
  flood& operator=(const flood&) = delete;
  ~flood() { thread_.join(); }
  std::atomic<std::size_t> came{0};

 private:
  void run(const link_settings& at, std::size_t how_many, const std::vector<std::string>& words) {
    const std::size_t kept = descriptors();
    while (came < how_many) {
      auto next = begin_connect(*address_without_asking(at.address));
      if (!next) continue;
      send_raw(*next, words[came % words.size()]);
      open_.push_back(std::move(*next));
      if (open_.size() > kept) open_.pop_front();
      ++came;
    }
  }
  std::deque<unique_fd> open_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("thousands of unknown peers neither keep a group from gathering nor use up its memory") {
  group_over_links all(link_kind::secret, {.ranks = 4});
  const std::size_t before = resident_kib();
  std::size_t pending_max = 0;
  std::optional<own_time> began;
  std::optional<std::chrono::milliseconds> joined;
  {
    const flood strange(all.link(), peers, words_of_all_kinds(all.link()));
    run_until(
        all.io,
        [&] {
          if (!began && strange.came >= peers / 4) {
            began.emplace();
            all.start_all();
          }
          if (began && !joined && all.all_may_hand_out()) joined = began->passed();
          pending_max = std::max(pending_max, all.coordinator->listener->pending());
          return strange.came == peers && joined;
        },
        60s);
  }
  // Connections that have not been accepted yet wait in the kernel. A fifth of them have sent nothing, and the kernel delivers these only
  // when they do.
  std::uint64_t counted = 0;
  run_until(all.io, [&] {
    counted = 0;
    for (const std::uint64_t count : all.coordinator->listener->unknown_peers()) counted += count;
    pending_max = std::max(pending_max, all.coordinator->listener->pending());
    return counted > peers * 3 / 5;
  });
  const std::size_t after = resident_kib();
  const std::size_t grown = after > before ? after - before : 0;
  fmt::print("{} unknown peers, {} of them heard: the group gathered in {} ms, {} KiB of memory more\n",
             peers, counted, joined->count(), grown);
  CHECK(*joined < soon);
  CHECK(pending_max <= coordinator_listener::pending_max);
#ifndef __SANITIZE_ADDRESS__  // the allocator keeps freed memory
  CHECK(grown < 32 * 1024);
#endif
  CHECK(all.coordinator->news.size() < 60);
  all.deliver_to(20);
  run_until(all.io, [&] { return all.all_ended(); });
}

// Peers that replay a member's hello count as proven until their handshake stops, and are dropped last. They still
// keep no member out: its handshake takes one round trip, and the oldest proven connection is dropped first.
TEST_CASE("a recorded hello, replayed a thousand times, keeps no rank out") {
  group_over_links all(link_kind::secret, {.ranks = 4});
  std::optional<own_time> began;
  std::optional<std::chrono::milliseconds> joined;
  const auto counted = [&](unknown_peer_kind kind) {
    return all.coordinator->listener->unknown_peers()[static_cast<std::size_t>(kind)];
  };
  {
    const flood strange(all.link(), peers, {first_words(all.link().secret->bytes)});
    run_until(
        all.io,
        [&] {
          const bool full = all.coordinator->listener->pending() == coordinator_listener::pending_max;
          if (!began && full) {
            began.emplace();
            all.start_all();
          }
          if (began && !joined && all.all_may_hand_out()) joined = began->passed();
          // While the flood lasts, the peers' connections stay open: those beyond pending_max displace others.
          return strange.came == peers && joined && counted(unknown_peer_kind::crowded_out) > 0;
        },
        60s);
  }
  fmt::print("next to {} repeated hellos, the group gathered in {} ms\n", peers, joined->count());
  CHECK(*joined < soon);
  // Connections that have not been accepted yet wait in the kernel; the last ones have closed by then.
  run_until(all.io, [&] {
    return counted(unknown_peer_kind::crowded_out) + counted(unknown_peer_kind::garbage) > peers * 3 / 5;
  });
  CHECK(counted(unknown_peer_kind::wrong_secret) == 0);  // so the repeated hellos were treated as those of members
}
