#include "runtime/hosts/host_shares.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cmath>
#include <map>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

/// A host that runs for `time` and looks at its sessions meanwhile.
void pass(host_shares& shares, steady_time& now, nanoseconds time) {
  for (const steady_time until = now + time; now < until; now += 500ms) shares.advance(now);
  shares.advance(now);
}

/// Sessions whose consumers would not wait if they had `needs` workers. They call, hand workers over at once, and are measured.
class shared_host {
 public:
  explicit shared_host(std::uint32_t workers) : shares_({.workers = workers}) {}

  void set(session_number session, double needs) { needs_[session] = needs; }
  void pause(session_number session) { paused_ = session; }
  void scale(session_number session, std::uint32_t workers) { shares_.wants_at_most(session, workers); }
  void dismiss(session_number session) { shares_.dismiss(session); }
  void go(session_number session) {
    while (shares_.held(session) > 0) shares_.ended(session, false, now_);
    needs_.erase(session);
    shares_.advance(now_);
  }

  void run(nanoseconds time) {
    for (const steady_time until = now_ + time; now_ < until;) {
      now_ += 200ms;
      for (const auto& [session, needs] : needs_) step(session, needs);
      changes_ += shares_.advance(now_);
      for (const session_number session : shares_.sessions()) {
        while (shares_.surplus(session) > 0) {
          shares_.leaving(session);
          shares_.ended(session, true, now_);
        }
      }
    }
  }

  [[nodiscard]] std::uint32_t of(session_number session) const { return shares_.held(session); }
  [[nodiscard]] std::uint32_t changes() const { return changes_; }

 private:
  void step(session_number session, double needs) {
    while (shares_.calls(session, now_)) {
    }
    const double has = shares_.held(session);
    waited_[session] += std::chrono::duration_cast<nanoseconds>(0.2s * std::max(0.0, 1 - has / std::max(needs, 1e-3)));
    shares_.waited(session, waited_[session], now_);
    shares_.worked(session, session == paused_ ? 0 : static_cast<std::uint32_t>(std::round(std::min(has, needs))), now_);
  }

  steady_time now_{1h};
  host_shares shares_;
  std::map<session_number, double> needs_;
  session_number paused_ = 0;
  std::map<session_number, nanoseconds> waited_;
  std::uint32_t changes_ = 0;
};

}  // namespace

TEST_CASE("the only session of a host has all of its workers, whatever it needs") {
  shared_host host(8);
  host.set(1, 0);
  host.run(60s);
  CHECK(host.of(1) == 8);
  CHECK(host.changes() == 0);
}

TEST_CASE(
    "sessions that need more than all workers get equal shares, and a late one gets its share within a second") {
  shared_host host(9);
  host.set(1, 100);
  host.run(20s);
  host.set(2, 100);
  host.run(1s);
  CHECK(host.of(2) >= 4);
  host.set(3, 100);
  host.run(1s);
  CHECK(std::array{host.of(1), host.of(2), host.of(3)} == std::array{3U, 3U, 3U});
  const std::uint32_t changes = host.changes();
  host.run(60s);
  CHECK(host.changes() == changes);
}

TEST_CASE("workers are shared in proportion to what the sessions need") {
  shared_host host(8);
  host.set(1, 3);
  host.set(2, 6);
  host.run(30s);
  CHECK(host.of(1) == 3);
  CHECK(host.of(2) == 5);
}

TEST_CASE(
    "a session whose consumer stops keeps one worker, lends the rest within ten seconds, and gets them back later") {
  shared_host host(8);
  host.set(1, 100);
  host.set(2, 100);
  host.run(30s);
  host.set(1, 0);
  host.run(10s);
  CHECK(host.of(1) == 1);
  CHECK(host.of(2) == 7);
  host.set(1, 100);
  host.run(10s);
  CHECK(host.of(1) == 4);
  CHECK(host.of(2) == 4);
}

TEST_CASE("a session that waits although its workers are idle, because it is paused, needs one worker") {
  shared_host host(8);
  host.set(1, 100);
  host.set(2, 100);
  host.run(30s);
  host.pause(1);
  host.run(10s);
  CHECK(host.of(1) == 1);
  CHECK(host.of(2) == 7);
}

TEST_CASE("a session that ends leaves its workers to the others at once") {
  shared_host host(4);
  host.set(1, 100);
  host.set(2, 100);
  host.run(5s);
  host.go(2);
  host.run(400ms);
  CHECK(host.of(1) == 4);
}

TEST_CASE("sessions that together need less than all workers keep what they have") {
  shared_host host(8);
  host.set(1, 1);
  host.run(10s);
  host.set(2, 2);
  host.run(10s);
  const std::uint32_t changes = host.changes();
  host.run(120s);
  CHECK(host.changes() == changes);
  CHECK(host.of(2) >= 2);
}

TEST_CASE(
    "if there are more sessions than workers, each worker serves one and the rest wait until one is free") {
  shared_host host(2);
  for (session_number one = 1; one <= 3; ++one) host.set(one, 5);
  host.run(10s);
  CHECK(host.of(1) + host.of(2) + host.of(3) == 2);
  CHECK(host.of(3) == 0);
  host.go(1);
  host.run(1s);
  CHECK(host.of(3) == 1);
}

TEST_CASE("a worker is offered to another session only after the previous one has handed it over") {
  host_shares shares({.workers = 2});
  const steady_time now{1h};
  CHECK(shares.calls(1, now));
  CHECK(shares.calls(1, now));
  CHECK_FALSE(shares.calls(1, now));
  CHECK_FALSE(shares.calls(2, now));
  CHECK(shares.surplus(1) == 1);
  CHECK(shares.offer(2) == 0);
  shares.leaving(1);
  CHECK_FALSE(shares.calls(2, now + 100ms));
  shares.ended(1, true, now + 200ms);
  CHECK(shares.offer(2) == 1);
  CHECK(shares.calls(2, now + 300ms));
  CHECK_FALSE(shares.calls(1, now + 300ms));
}

TEST_CASE("a session that has connected and does not return is forgotten") {
  host_shares shares({.workers = 2});
  steady_time now{1h};
  CHECK(shares.calls(1, now));
  CHECK(shares.calls(1, now));
  CHECK_FALSE(shares.calls(2, now));
  shares.leaving(1);
  shares.ended(1, true, now);
  pass(shares, now, 6s);
  CHECK(shares.offer(2) == 0);
  CHECK(shares.offer(1) == 2);
}

TEST_CASE("all but one of the workers that rest for a session go to the others, and come back when it is scaled up") {
  shared_host host(8);
  host.set(1, 100);
  host.set(2, 100);
  host.run(10s);
  host.scale(1, 2);
  host.run(10s);
  CHECK(host.of(1) == 2);
  CHECK(host.of(2) == 6);
  host.scale(1, 0);
  host.run(10s);
  CHECK(host.of(1) == 1);
  CHECK(host.of(2) == 7);
  host.scale(1, 8);
  host.run(15s);
  CHECK(host.of(1) == 4);
  CHECK(host.of(2) == 4);
}

TEST_CASE("the only session of a host keeps the workers that rest, until another one joins") {
  shared_host host(8);
  host.set(1, 100);
  host.run(1s);
  host.scale(1, 2);
  host.run(60s);
  CHECK(host.of(1) == 8);
  host.set(2, 100);
  host.run(1s);
  CHECK(host.of(2) >= 6);
}

TEST_CASE(
    "a session that has sent its host away gives all workers to the others, and gets none while it keeps connecting") {
  shared_host host(8);
  host.set(1, 100);
  host.set(2, 100);
  host.run(10s);
  host.dismiss(1);
  host.run(1s);
  CHECK(host.of(1) == 0);
  CHECK(host.of(2) == 8);
  host.run(30min);
  CHECK(host.of(1) == 0);
}

TEST_CASE("a session that has sent its host away is not forgotten while it may be suspended") {
  host_shares shares({.workers = 2});
  steady_time now{1h};
  CHECK(shares.calls(1, now));
  shares.dismiss(1);
  CHECK(shares.surplus(1) == 1);
  shares.leaving(1);
  shares.ended(1, true, now);
  for (int i = 0; i < 2; ++i) {
    pass(shares, now, 9min);
    CHECK_FALSE(shares.calls(1, now));
  }
  CHECK(shares.is_dismissed(1));
  pass(shares, now, 11min);
  CHECK_FALSE(shares.is_dismissed(1));
}

TEST_CASE("a session that has sent its host away is not forgotten because the host was suspended") {
  host_shares shares({.workers = 2});
  steady_time now{1h};
  CHECK(shares.calls(1, now));
  shares.dismiss(1);
  shares.ended(1, false, now);
  pass(shares, now, 9min);
  now += 24h;
  shares.advance(now);
  CHECK(shares.is_dismissed(1));
  now += 24h;
  CHECK_FALSE(shares.calls(1, now));
  pass(shares, now, 9min);
  CHECK(shares.is_dismissed(1));
}
