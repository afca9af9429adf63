// Random sessions come, change their needs, let workers rest, send the host away, stop, hand workers over late and vanish. Invariants are
// checked after every step.
#include "runtime/hosts/host_shares.hpp"

#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t workers = 12;
constexpr std::size_t sessions_max = 15;

struct session_seen {
  double needs = 0;
  std::uint32_t held = 0;
  std::uint32_t leaving = 0;
  std::uint32_t limit = workers;
  bool dismissed = false;
  nanoseconds waited{0};

  [[nodiscard]] std::uint32_t running() const { return std::min(held, limit); }
  [[nodiscard]] double busy() const { return std::round(std::min<double>(running(), needs)); }
};

class model {
 public:
  explicit model(std::uint64_t seed) : random_(seed) {}

  void step() {
    const auto passed = std::chrono::milliseconds(draw(150));
    now_ += passed;
    disturb();
    for (auto& [number, seen] : seen_) live(number, seen, passed);
    const std::uint32_t changed = shares_.advance(now_);
    changes += changed;
    for (auto& [number, seen] : seen_) {
      for (std::uint32_t n = shares_.surplus(number); n > 0; --n) {
        shares_.leaving(number);
        --seen.held;
        ++seen.leaving;
      }
    }
    check();
  }

  std::uint64_t came = 0, gone = 0, changes = 0, calm = 0, compared = 0;

 private:
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

  void disturb() {
    if (calm_until_ > now_) return;
    disturbed_at_ = now_;
    switch (draw(400)) {
      case 0: calm_until_ = now_ + 60s; return;
      case 1:
      case 2:
        if (seen_.size() == sessions_max) return;
        seen_[++last_].needs = draw_need();
        ++came;
        return;
      default: break;
    }
    if (seen_.empty()) return;
    auto at = seen_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(draw(seen_.size())));
    auto& [number, seen] = *at;
    if (draw(seen.dismissed ? 100 : 1000) < seen_.size()) {
      for (; seen.held > 0; --seen.held) shares_.ended(number, false, now_);
      for (; seen.leaving > 0; --seen.leaving) shares_.ended(number, true, now_);
      seen_.erase(at);
      ++gone;
    } else if (draw(200) == 0 && seen.held > 0) {
      --seen.held;
      shares_.ended(number, false, now_);
    } else if (draw(100) == 0) {
      seen.needs = draw_need();
    } else if (draw(100) == 0) {
      seen.limit = draw(2) == 0 ? workers : static_cast<std::uint32_t>(draw(workers + 1));
      shares_.wants_at_most(number, seen.limit);
    } else if (draw(500) == 0) {
      shares_.dismiss(number);
      seen.dismissed = shares_.is_dismissed(number);
    }
  }

  double draw_need() { return draw(4) == 0 ? 0 : static_cast<double>(draw(200)) / 10; }

  void live(session_number number, session_seen& seen, nanoseconds passed) {
    if (draw(4) == 0 && shares_.calls(number, now_)) ++seen.held;
    const double lacks = std::max(0.0, 1 - seen.running() / std::max(seen.needs, 1e-3));
    seen.waited += nanoseconds(static_cast<std::int64_t>(static_cast<double>(passed.count()) * lacks));
    if (draw(3) != 0) shares_.waited(number, seen.waited - (draw(9) == 0 ? nanoseconds(1) : nanoseconds(0)), now_);
    shares_.wants_at_most(number, seen.limit);
    shares_.worked(number, static_cast<std::uint32_t>(seen.busy()), now_);
    if (seen.leaving > 0 && draw(5) == 0) {
      --seen.leaving;
      shares_.ended(number, true, now_);
    }
  }

  void check() {
    std::uint32_t taken = 0;
    for (const auto& [number, seen] : seen_) {
      REQUIRE(shares_.held(number) == seen.held);
      taken += std::max(seen.held, shares_.offer(number)) + seen.leaving;
    }
    REQUIRE(taken <= workers);
    if (now_ - disturbed_at_ < 40s) {
      changes_when_calm_ = changes;
      return;
    }
    // After a long time without changes, shares follow the needs, and no worker changes its session.
    ++calm;
    if (changes != changes_when_calm_) {
      for (const auto& [number, seen] : seen_) {
        UNSCOPED_INFO("session " << number << ": needs " << seen.needs << ", limit " << seen.limit << ", holds " << seen.held << ", of which "
                                 << seen.busy() << " work; dismissed " << seen.dismissed << "; is offered " << shares_.offer(number)
                                 << " for a need of " << shares_.need(number));
      }
    }
    REQUIRE(changes == changes_when_calm_);
    std::map<session_number, session_seen> served = seen_;
    for (const auto& [number, seen] : seen_) {
      if (!seen.dismissed) continue;
      REQUIRE(seen.held == 0);
      served.erase(number);
    }
    const auto with_none = static_cast<std::size_t>(std::ranges::count_if(served, [](const auto& one) { return one.second.held == 0; }));
    REQUIRE(with_none == (served.size() > workers ? served.size() - workers : 0));
    if (served.size() > workers || served.empty()) return;
    REQUIRE(taken == workers);
    compared += compare(served);
  }

  /// As defined in host_shares.hpp, for a session that waits and for one that does not.
  static double need(const session_seen& one) {
    const double most = std::clamp(one.limit, 1U, workers);
    const bool waits = one.running() < 0.95 * one.needs && one.busy() > 0.3 * one.held;
    const double wanted = std::max(one.held * std::max(1.0, one.needs / std::max(one.running(), 1U)), 1.0);
    return std::min(most, waits ? wanted : std::clamp(1.25 * one.busy(), 1.0, wanted));
  }

  /// Checks, if every fair share is at least one worker: no session that needs more is so far below its share that it should
  /// get a worker from another one. Returns how many sessions were checked.
  static std::uint64_t compare(const std::map<session_number, session_seen>& served) {
    std::uint64_t compared = 0;
    double needs = 0;
    double least = workers;
    for (const auto& [number, seen] : served) {
      needs += need(seen);
      least = std::min(least, need(seen));
    }
    if (workers * least / needs < 1) return 0;
    const auto lacks = [&](const session_seen& one) { return workers * need(one) / needs - one.held; };
    for (const auto& [number, seen] : served) {
      if (need(seen) - seen.held <= 0.6) continue;
      for (const auto& [other, has] : served) {
        if (has.held >= 2) REQUIRE(lacks(seen) - lacks(has) < 1.75);
      }
      ++compared;
    }
    return compared;
  }

  std::mt19937_64 random_;
  steady_time now_{1h};
  steady_time calm_until_{};
  steady_time disturbed_at_{1h};
  std::uint64_t changes_when_calm_ = 0;
  host_shares shares_{{.workers = workers}};
  std::map<session_number, session_seen> seen_;
  session_number last_ = 0;
};

}  // namespace

TEST_CASE(
    "in a million random steps no worker is given to two sessions, and steady needs get steady shares") {
  model tried(testing::seed_of_this_run("host shares"));
  for (int i = 0; i < 1'000'000; ++i) tried.step();
  CHECK(tried.came > 1'000);
  CHECK(tried.gone > 1'000);
  CHECK(tried.changes > 1'000);
  CHECK(tried.calm > 10'000);
  CHECK(tried.compared > 1'000);
}
