#include "runtime/supervision/hang_detector.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;

namespace {

/// Polls at the right intervals while the test advances the clock.
class watcher {
 public:
  explicit watcher(std::uint32_t workers, hang_settings settings = {1s, 1s, 1s})
      : settings_(settings), detector_(settings) {
    for (std::uint32_t w = 0; w < workers; ++w) {
      detector_.watch(w, now_);
      signs.push_back({w, true, 0, 0, false, false});
    }
    detector_.look(now_, signs);
  }

  /// All findings in this time, each worker once.
  std::vector<hang_finding> pass(nanoseconds time, bool hearts_beat = true) {
    std::vector<hang_finding> all;
    for (const auto end = now_ + time; now_ < end;) {
      now_ += settings_.tick();
      if (hearts_beat) {
        for (child_sign& s : signs) ++s.heartbeats;
      }
      for (const hang_finding& v : detector_.look(now_, signs)) {
        detector_.forget(v.worker);
        all.push_back(v);
      }
    }
    return all;
  }
  void jump(nanoseconds time) { now_ += time; }
  std::vector<hang_finding> look() { return detector_.look(now_, signs); }

  std::vector<child_sign> signs;

 private:
  hang_settings settings_;
  hang_detector detector_;
  steady_time now_{};
};

}  // namespace

TEST_CASE("an idle worker with heartbeats is not hanging") {
  watcher w(1);
  CHECK(w.pass(1h / 60).empty());
}

TEST_CASE("a worker without heartbeats is found within 1.3 timeouts") {
  watcher w(1);
  const auto findings = w.pass(1300ms, false);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == hang::heartbeat);
  CHECK(findings[0].since >= 1s);
}

TEST_CASE("a worker with heartbeats but a stuck sample is found within 1.3 timeouts") {
  watcher w(1);
  w.signs[0].busy = true;
  w.signs[0].work_mark = 5;
  const auto findings = w.pass(1300ms);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == hang::item);
}

TEST_CASE("many samples, each within its time, are not a hang") {
  watcher w(1);
  w.signs[0].busy = true;
  for (int i = 0; i < 20; ++i) {
    ++w.signs[0].work_mark;
    CHECK(w.pass(900ms).empty());
  }
}

TEST_CASE("a job's own timeout replaces the item timeout, whether shorter or longer") {
  watcher w(2);
  for (child_sign& s : w.signs) s.busy = true;
  w.signs[0].limit = 300ms;
  w.signs[1].limit = 5s;
  const auto first = w.pass(600ms);
  REQUIRE(first.size() == 1);
  CHECK(first[0].worker == 0);
  CHECK(first[0].since >= 300ms);
  CHECK(w.pass(4s).empty());
  CHECK(w.pass(1s).size() == 1);
}

TEST_CASE("time during which the watcher was suspended does not count towards a job's own timeout") {
  for (const nanoseconds pause : {nanoseconds(200ms), nanoseconds(500ms), nanoseconds(4s), nanoseconds(1h)}) {
    watcher w(1, {30s, 10s, 24h});
    w.signs[0].busy = true;
    w.signs[0].work_mark = 5;
    w.signs[0].limit = 1s;
    CHECK(w.pass(500ms).empty());  // the job begins
    w.jump(pause);
    ++w.signs[0].heartbeats;
    CHECK(w.look().empty());
    CHECK(w.pass(1s).size() == 1);
  }
}

TEST_CASE("a job's own timeout applies even if each poll is late") {
  watcher w(1, {30s, 10s, 24h});
  w.signs[0].busy = true;
  w.signs[0].work_mark = 5;
  w.signs[0].limit = 100ms;
  int looks = 0;
  do {
    w.jump(400ms);
  } while (w.look().empty() && ++looks < 100);
  CHECK(looks == 4);
}

TEST_CASE("jobs that exceed their own timeouts at the same time do not indicate an overloaded machine") {
  watcher w(8);
  for (child_sign& s : w.signs) {
    s.busy = true;
    s.limit = 300ms;
  }
  CHECK(w.pass(400ms).size() == 8);
}

TEST_CASE("a child that is not ready by its deadline is found, even if it sends heartbeats") {
  watcher w(1);
  w.signs[0].ready = false;
  const auto findings = w.pass(1300ms);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == hang::start);
}

TEST_CASE("a child that is ready after a long start has the full heartbeat timeout for its first heartbeat") {
  hang_detector detector({.start_deadline = 30s, .heartbeat_timeout = 1s, .item_timeout = 1s});
  steady_time now{1h};
  detector.watch(0, now);
  for (int i = 0; i < 200; ++i) CHECK(detector.look(now += 50ms, {}).empty());
  child_sign sign{0, true, 0, 0, true, false};
  for (int i = 0; i < 20; ++i) CHECK(detector.look(now += 50ms, {sign}).empty());
  CHECK(detector.look(now += 50ms, {sign}).size() == 1);
}

TEST_CASE("no child is blamed for time during which the supervisor did not poll") {
  watcher w(1);
  w.signs[0].busy = true;
  w.signs[0].work_mark = 1;
  CHECK(w.pass(500ms).empty());
  w.jump(1h);
  CHECK(w.look().empty());
  CHECK(w.pass(300ms, false).empty());
  CHECK(w.pass(1300ms, false).size() == 1);
}

TEST_CASE("time without polls does not count for a starting child, nor does time before the first poll") {
  const hang_settings clocks{1s, 1s, 1s};
  hang_detector detector(clocks);
  steady_time now{};
  detector.watch(0, now);
  now += 1h;
  CHECK(detector.look(now, {}).empty());  // the start of the process has not returned
  const std::vector<child_sign> starting{{0, false, 0, 0, false, false}};
  for (int i = 0; i < 15; ++i) {
    now += clocks.tick();
    CHECK(detector.look(now, starting).empty());
  }
  now += 1h;
  CHECK(detector.look(now, {}).empty());
  CHECK(detector.look(now, starting).empty());
  now += 2 * clocks.tick();
  CHECK(detector.look(now, starting).size() == 1);
}

TEST_CASE("a child under a debugger may be stopped for any length of time") {
  watcher w(1);
  w.signs[0].busy = true;
  w.signs[0].traced = true;
  CHECK(w.pass(1h / 60, false).empty());
}

TEST_CASE("time under a debugger does not count later either") {
  for (const bool ready : {true, false}) {
    watcher w(1);
    w.signs[0].ready = ready;
    w.signs[0].busy = true;
    w.signs[0].traced = true;
    CHECK(w.pass(1h / 60).empty());
    w.signs[0].traced = false;
    CHECK(w.pass(900ms).empty());
    CHECK(w.pass(400ms).size() == 1);
  }
}

TEST_CASE(
    "if over half of four or more children miss their time together, the decision is delayed by only one timeout") {
  watcher w(4);
  w.signs[3].busy = false;
  CHECK(w.pass(1800ms, false).empty());
  CHECK(w.pass(500ms, false).size() == 4);
}

TEST_CASE(
    "four children that stop together are late together, even if their last heartbeats differ slightly") {
  watcher w(4);
  for (const std::size_t beating : {3, 2, 1, 0}) {  // each worker stops beating one poll after the previous one
    CHECK(w.pass(62ms, false).empty());
    for (std::size_t i = 0; i < beating; ++i) ++w.signs[i].heartbeats;
  }
  CHECK(w.pass(1600ms, false).empty());
  CHECK(w.pass(500ms, false).size() == 4);
}

TEST_CASE("if four stop together and three recover, the fourth also has half a timeout to recover") {
  watcher w(4);
  CHECK(w.pass(1500ms, false).empty());
  const auto beat_but_the_last = [&] {
    for (std::size_t i = 0; i < 3; ++i) ++w.signs[i].heartbeats;
    return w.pass(62ms, false);
  };
  for (int i = 0; i < 7; ++i) CHECK(beat_but_the_last().empty());
  std::vector<hang_finding> found;
  for (int i = 0; i < 3 && found.empty(); ++i) found = beat_but_the_last();
  REQUIRE(found.size() == 1);
  CHECK(found[0].worker == 3);
}

TEST_CASE(
    "children that already had an extra half timeout are found, even if over half are late together again") {
  watcher w(4);
  const auto pass_while_it_beats = [&](std::size_t one, nanoseconds time) {
    std::vector<hang_finding> found;
    for (nanoseconds passed{0}; passed < time && found.empty(); passed += 62ms) {
      ++w.signs[one].heartbeats;
      found = w.pass(62ms, false);
    }
    return found;
  };
  CHECK(pass_while_it_beats(3, 750ms).empty());
  CHECK(w.pass(250ms, false).empty());  // 0, 1 and 2 are late together
  // Worker 1 recovers, so 0 and 2 get another half timeout; when that ends, 3 is nearly late, too.
  CHECK(pass_while_it_beats(1, 430ms).empty());
  CHECK(pass_while_it_beats(1, 190ms).size() == 2);
}

TEST_CASE("the delay of the decision depends on the timeout that was missed, not on a shorter one") {
  watcher w(4, {1s, 1s, 4s});
  for (child_sign& sign : w.signs) sign.busy = true;
  CHECK(w.pass(7s).empty());  // all workers miss their item timeout at 4 s
  CHECK(w.pass(1500ms).size() == 4);
}

TEST_CASE("in a pool of three all can be found at once") {
  watcher w(3);
  CHECK(w.pass(1300ms, false).size() == 3);
}
