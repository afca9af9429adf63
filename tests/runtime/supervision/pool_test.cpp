#include "runtime/supervision/pool.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;

namespace {

constexpr death crash{death::how::abnormal, false, false};
constexpr death fruitful_crash{death::how::abnormal, false, true};
constexpr death normal_end{death::how::normal, false, true};

pool_settings with_workers(std::uint32_t workers) {
  pool_settings settings;
  settings.workers = workers;
  return settings;
}

/// A pool with simulated processes: every start succeeds at once unless the test says otherwise.
class world {
 public:
  explicit world(const pool_settings& settings) : children(settings) { children.open(now); }

  std::vector<worker_ref> started() {
    std::vector<worker_ref> refs;
    for (const pool_command& c : children.advance(now)) {
      if (const auto* start = std::get_if<start_child>(&c)) refs.push_back(start->who);
      if (const auto* drain = std::get_if<drain_child>(&c)) drained.push_back(drain->who);
      if (const auto* lost = std::get_if<sacrificial_failed>(&c)) given_up.push_back(lost->reason);
      if (const auto* end = std::get_if<pool_failed>(&c)) failure_ = end->reason;
    }
    return refs;
  }
  void start_all() {
    for (const worker_ref who : started()) children.child_ready(who, now);
  }
  void kill(worker_ref who, const death& d = crash, const std::string& last_words = "") {
    children.child_died(who, now, d, "SIGSEGV", last_words);
  }
  child_state state(std::uint32_t worker) const {
    for (const place_view& p : children.places()) {
      if (p.worker == worker) return p.state;
    }
    return child_state::stopped;
  }
  [[nodiscard]] const std::optional<failure>& failed() const { return failure_; }

  steady_time now{};
  pool children;
  std::vector<worker_ref> drained;
  std::vector<std::string> given_up;  // the reason why the sacrificial worker could not be started

 private:
  std::optional<failure> failure_;
};

}  // namespace

TEST_CASE("no worker starts before the first demand, and then exactly the wanted number") {
  pool children(with_workers(4));
  CHECK(children.advance({}).empty());
  children.open({});
  CHECK(children.advance({}).size() == 4);
  CHECK(children.advance({}).empty());
  CHECK(children.alive() == 4);
}

TEST_CASE("a worker that made progress is replaced at once by the next incarnation") {
  world w(with_workers(2));
  w.start_all();
  w.kill({1, 1}, fruitful_crash);
  CHECK(w.started() == std::vector<worker_ref>{{1, 2}});
  CHECK(w.children.restarts() == 1);
}

TEST_CASE("the restarts of all places add up to the pool's, not counting those of the sacrificial worker") {
  world w(with_workers(2));
  w.start_all();
  w.kill({1, 1}, fruitful_crash);
  w.start_all();
  w.children.want_sacrificial(true, w.now);
  w.start_all();
  for (std::uint32_t incarnation = 1; incarnation < 4; ++incarnation) {
    w.kill({64, incarnation});
    w.start_all();
  }
  std::uint32_t sum = 0;
  for (const place_view& p : w.children.places()) sum += p.restarts;
  CHECK(sum == 1);
  CHECK(w.children.restarts() == 1);
}

TEST_CASE("reports of a dead incarnation change nothing") {
  world w(with_workers(1));
  w.start_all();
  w.kill({0, 1}, fruitful_crash);
  w.start_all();
  w.kill({0, 1});
  w.children.child_ready({0, 1}, w.now);
  CHECK(w.state(0) == child_state::ready);
}

TEST_CASE("a place whose workers die too often without progress fails, and the pool continues degraded") {
  world w(with_workers(2));
  w.start_all();
  for (std::uint32_t i = 1; i <= 6; ++i) {
    w.kill({0, i});
    w.now += 10s;
    w.start_all();
    w.children.child_ready({0, i + 1}, w.now - 5s);
  }
  CHECK(w.state(0) == child_state::failed);
  CHECK(w.state(1) == child_state::ready);
  CHECK(w.children.degraded());
  CHECK_FALSE(w.failed());
}

TEST_CASE("when no place is left, the run fails with a worker's last output") {
  world w(with_workers(1));
  for (std::uint32_t i = 1; i <= 6; ++i) {
    w.started();
    w.kill({0, i}, crash, "cannot open shared object");
    w.now += 5s;
  }
  w.started();
  REQUIRE(w.failed());
  CHECK(w.failed()->code == errc::workers_exhausted);
  CHECK(w.failed()->message ==
        "no loader worker is left: worker 0 was restarted 5 times within 60 s, the limit of [loader.restart] intensity; "
        "worker 0 ended with SIGSEGV; its last output:\ncannot open shared object");
}

TEST_CASE("when the restart type restarts no worker, the last death ends the run") {
  auto settings = with_workers(2);
  settings.restart.type = restart_type::temporary;
  world w(settings);
  w.start_all();
  w.kill({0, 1}, fruitful_crash);
  w.started();
  CHECK_FALSE(w.failed());
  w.kill({1, 1}, fruitful_crash, "cannot go on");
  w.started();
  REQUIRE(w.failed());
  CHECK(w.failed()->message ==
        "no loader worker is left, and [loader.restart] type = \"temporary\" allows no restart; worker 1 ended with SIGSEGV; its last "
        "output:\ncannot go on");
}

TEST_CASE("fewer ready workers than the minimum for its time end the run") {
  auto settings = with_workers(2);
  settings.min_ready = 2;
  world w(settings);
  w.children.child_ready(w.started().front(), w.now);
  w.now += 59s;
  w.started();
  CHECK_FALSE(w.failed());
  w.now += 1s;
  w.started();
  REQUIRE(w.failed());
  CHECK(w.failed()->message == "fewer than 2 loader workers were ready for 60 s: only 1");
}

TEST_CASE("a minimum above the number of workers means all of them, and grows with that number") {
  auto settings = with_workers(1);
  settings.min_ready = 2;
  world w(settings);
  w.start_all();
  w.now += 1h;
  w.started();
  CHECK_FALSE(w.failed());
  w.children.scale(3, w.now);
  w.started();
  w.now += 60s;
  w.started();
  REQUIRE(w.failed());
  CHECK(w.failed()->message.starts_with("fewer than 2 loader workers"));
}

TEST_CASE("a program that cannot be executed ends the run with the reason") {
  world w(with_workers(4));
  const auto refs = w.started();
  w.children.start_failed(refs[0], w.now,
                          {errc::worker_program, "executing 'x': No such file or directory", ENOENT});
  w.started();
  REQUIRE(w.failed());
  CHECK(w.failed()->message == "executing 'x': No such file or directory");
}

TEST_CASE("an exit that would repeat itself ends the run at once") {
  world w(with_workers(2));
  const auto refs = w.started();
  w.children.child_died(refs[1], w.now, {death::how::no_restart, false, false}, "exit 78", "dataset differs");
  w.started();
  REQUIRE(w.failed());
  CHECK(w.failed()->message ==
        "worker 1 ended with exit 78; restarting would not help; its last output:\ndataset differs");
}

TEST_CASE("more than fifty restarts a second are delayed, not refused") {
  world w(with_workers(60));
  w.start_all();
  for (std::uint32_t i = 0; i < 60; ++i) w.kill({i, 1}, fruitful_crash);
  CHECK(w.started().size() == 50);
  CHECK(w.started().empty());
  CHECK(w.children.next_deadline() == w.now + 1s);
  w.now += 1s;
  CHECK(w.started().size() == 10);
}

TEST_CASE(
    "if half the pool dies at once without progress, one worker starts first and the rest follow when it is ready") {
  world w(with_workers(4));
  w.start_all();
  w.kill({0, 1});
  w.kill({1, 1});
  w.kill({2, 1});
  const auto first = w.started();
  REQUIRE(first.size() == 1);
  CHECK(w.started().empty());
  SECTION("the canary gets ready") {
    w.children.child_ready(first[0], w.now);
    CHECK_FALSE(w.started().empty());
  }
  SECTION("the canary dies and starts again, and no other worker does") {
    w.kill(first[0]);
    w.now += 31s;
    const auto again = w.started();
    REQUIRE(again.size() == 1);
    CHECK(again[0].worker == first[0].worker);
  }
}

TEST_CASE("one place that dies repeatedly within a second does not count as half the pool") {
  world w(with_workers(5));
  w.start_all();
  for (std::uint32_t i = 1; i <= 3; ++i) {
    w.kill({0, i});
    w.now += 250ms;
    w.start_all();
  }
  w.kill({1, 1});
  w.start_all();
  CHECK(w.state(1) == child_state::ready);
}

TEST_CASE("an operator's restart does not wait for the canary") {
  world w(with_workers(4));
  w.start_all();
  for (std::uint32_t i = 0; i < 3; ++i) w.kill({i, 1});
  const auto canary = w.started();
  REQUIRE(canary == std::vector<worker_ref>{{0, 2}});
  w.children.restart(2, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{2, 2}});
}

TEST_CASE("a worker that an operator restarts, or that is recycled, comes back whatever the restart type") {
  for (const restart_type type : {restart_type::transient, restart_type::temporary}) {
    auto settings = with_workers(2);
    settings.restart.type = type;
    world w(settings);
    w.start_all();
    w.children.restart(0, w.now);
    w.children.recycle({1, 1});
    w.started();
    w.kill({0, 1}, normal_end);
    w.kill({1, 1}, normal_end);
    CHECK(w.started() == std::vector<worker_ref>{{0, 2}, {1, 2}});
  }
}

TEST_CASE("a pool emptied by an operator waits for a new order and is not below its minimum") {
  world w(with_workers(2));
  w.start_all();
  w.children.drain(0);
  w.children.drain(1);
  w.started();
  w.kill({0, 1}, normal_end);
  w.kill({1, 1}, normal_end);
  w.started();
  w.now += 1h;
  w.started();
  CHECK_FALSE(w.failed());
  w.children.restart(1, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{1, 2}});
}

TEST_CASE("when all other workers were drained, a worker that survives SIGKILL fails the run") {
  world w(with_workers(2));
  w.start_all();
  w.children.scale(1, w.now);
  w.started();
  w.children.child_unkillable({0, 1}, "no heartbeat for 10 s");
  SECTION("its place is not drained") {}
  SECTION("its place is drained as well") {
    w.children.drain(0);
  }
  w.started();
  CHECK_FALSE(w.failed());
  w.kill({1, 1}, normal_end);
  w.started();
  REQUIRE(w.failed());
  CHECK(w.failed()->message.ends_with("worker 0 survives SIGKILL: no heartbeat for 10 s"));
}

TEST_CASE("scaling up starts new places, and scaling down drains the highest ones") {
  world w(with_workers(2));
  w.start_all();
  w.children.scale(4, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{2, 1}, {3, 1}});
  w.children.child_ready({2, 1}, w.now);
  w.children.child_ready({3, 1}, w.now);
  w.children.scale(1, w.now);
  w.started();
  CHECK(w.drained == std::vector<worker_ref>{{1, 1}, {2, 1}, {3, 1}});
  w.kill({3, 1}, normal_end);
  CHECK(w.started().empty());
  CHECK(w.state(3) == child_state::stopped);
}

TEST_CASE("scaling down and up again while a worker drains brings its replacement") {
  world w(with_workers(2));
  w.start_all();
  w.children.scale(1, w.now);
  w.started();
  w.children.scale(2, w.now);
  CHECK(w.started().empty());
  w.kill({1, 1}, normal_end);
  CHECK(w.started() == std::vector<worker_ref>{{1, 2}});
}

TEST_CASE("a restart requested by an operator drains first and never counts") {
  world w(with_workers(1));
  w.start_all();
  for (std::uint32_t i = 1; i <= 20; ++i) {
    w.children.restart(0, w.now);
    w.started();
    REQUIRE(w.drained.size() == i);
    w.kill({0, i}, death{death::how::abnormal, false, false});
    w.start_all();
    CHECK(w.state(0) == child_state::ready);
  }
}

TEST_CASE("a drained place stays empty until an operator fills it") {
  world w(with_workers(2));
  w.start_all();
  w.children.drain(0);
  w.started();
  CHECK(w.drained == std::vector<worker_ref>{{0, 1}});
  w.kill({0, 1}, normal_end);
  w.now += 1h;
  CHECK(w.started().empty());
  CHECK_FALSE(w.failed());
  w.children.restart(0, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{0, 2}});
}

TEST_CASE("the sacrificial worker starts when it is needed and stops when it is not") {
  world w(with_workers(1));
  w.start_all();
  w.children.want_sacrificial(true, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{64, 1}});
  w.children.child_ready({64, 1}, w.now);
  w.kill({64, 1});  // deaths of the sacrificial worker are expected
  CHECK(w.started() == std::vector<worker_ref>{{64, 2}});
  w.children.child_ready({64, 2}, w.now);
  w.children.want_sacrificial(false, w.now);
  w.started();
  CHECK(w.drained == std::vector<worker_ref>{{64, 2}});
  CHECK_FALSE(w.children.degraded());
}

TEST_CASE("a canary that is drained while it waits, or survives SIGKILL, is replaced by another") {
  world w(with_workers(6));
  w.start_all();
  for (std::uint32_t i = 0; i < 3; ++i) w.kill({i, 1});
  const auto canary = w.started();
  REQUIRE(canary == std::vector<worker_ref>{{0, 2}});
  SECTION("drained in its backoff") {
    w.kill({0, 2});
    w.children.drain(0);
  }
  SECTION("unkillable") {
    w.children.child_unkillable({0, 2}, "no heartbeat");
  }
  CHECK(w.started() == std::vector<worker_ref>{{1, 2}});
}

TEST_CASE("the sacrificial worker comes back after every death, whatever the restart type") {
  for (const restart_type type : {restart_type::transient, restart_type::temporary}) {
    auto settings = with_workers(1);
    settings.restart.type = type;
    world w(settings);
    w.start_all();
    w.children.want_sacrificial(true, w.now);
    CHECK(w.started() == std::vector<worker_ref>{{64, 1}});
    w.children.child_ready({64, 1}, w.now);
    w.kill({64, 1}, {death::how::abnormal, true, false});  // one suspect is quarantined, and the next one waits
    CHECK(w.started() == std::vector<worker_ref>{{64, 2}});
    w.children.child_ready({64, 2}, w.now);
    w.kill({64, 2}, {death::how::normal, true, false});
    CHECK(w.started() == std::vector<worker_ref>{{64, 3}});
  }
}

TEST_CASE("a sacrificial worker whose setup keeps failing is given up, once and with the reason") {
  world w(with_workers(1));
  w.start_all();
  w.children.want_sacrificial(true, w.now);
  for (std::uint32_t i = 1; i <= 6; ++i) {
    REQUIRE(w.started() == std::vector<worker_ref>{{64, i}});
    REQUIRE(w.given_up.empty());
    w.kill({64, i});
    w.now += 5s;
  }
  CHECK(w.started().empty());
  CHECK(w.given_up == std::vector<std::string>{"worker 64 ended with SIGSEGV, too many times in a row"});
  CHECK_FALSE(w.children.degraded());
  CHECK_FALSE(w.failed());
  // The next suspect is worth another attempt.
  w.children.want_sacrificial(false, w.now);
  w.children.want_sacrificial(true, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{64, 7}});
}

TEST_CASE(
    "a sacrificial worker that would fail the same way again is given up at once, and the run continues") {
  world w(with_workers(1));
  w.start_all();
  w.children.want_sacrificial(true, w.now);
  REQUIRE(w.started() == std::vector<worker_ref>{{64, 1}});
  w.kill({64, 1}, {death::how::no_restart, false, false}, "one moment\nsetup: no licence");
  CHECK(w.started().empty());
  CHECK(w.given_up == std::vector<std::string>{
                          "worker 64 ended with SIGSEGV; restarting would not help: setup: no licence"});
  CHECK_FALSE(w.failed());
  CHECK_FALSE(w.children.degraded());
}

TEST_CASE("a sacrificial worker that is not ready in time is given up and stopped") {
  world w(with_workers(1));
  w.start_all();
  w.children.want_sacrificial(true, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{64, 1}});
  CHECK(w.children.next_deadline() == w.now + 60s);
  w.now += 60s;
  w.started();
  CHECK(w.given_up == std::vector<std::string>{"worker 64 was not ready within 60 s"});
  w.started();
  CHECK(w.drained == std::vector<worker_ref>{{64, 1}});
  w.kill({64, 1});
  CHECK(w.started().empty());
  CHECK(w.given_up.size() == 1);
}

TEST_CASE("time during which the session is suspended does not count against the sacrificial worker") {
  world w(with_workers(1));
  w.start_all();
  w.children.want_sacrificial(true, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{64, 1}});
  w.now += 50s + 1h;
  w.children.discount_time(1h);
  w.started();
  CHECK(w.given_up.empty());
  CHECK(w.children.next_deadline() == w.now + 10s);
}

TEST_CASE("an operator can replace the sacrificial worker, but not while it is stopped or idle") {
  world w(with_workers(1));
  w.start_all();
  w.children.restart(64, w.now);
  CHECK(w.started().empty());
  w.children.want_sacrificial(true, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{64, 1}});
  w.children.child_ready({64, 1}, w.now);
  w.children.drain(64);
  w.started();
  CHECK(w.drained == std::vector<worker_ref>{{64, 1}});
  w.kill({64, 1}, normal_end);
  CHECK(w.started() == std::vector<worker_ref>{{64, 2}});
}

TEST_CASE("a stopped place shows why it is empty, and a restart fills it") {
  auto settings = with_workers(3);
  settings.restart.type = restart_type::temporary;
  world w(settings);
  w.start_all();
  const auto why = [&](std::uint32_t worker) { return w.children.places().at(worker).why_stopped; };
  CHECK(why(0) == vacancy::none);
  w.children.scale(2, w.now);
  w.children.drain(0);
  w.started();
  for (std::uint32_t i = 0; i < 3; ++i) w.kill({i, 1}, normal_end);
  CHECK(why(0) == vacancy::drained);
  CHECK(why(1) == vacancy::not_restarted);
  CHECK(why(2) == vacancy::scaled_down);
  w.children.restart(0, w.now);
  w.children.restart(1, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{0, 2}, {1, 2}});
  CHECK(why(0) == vacancy::none);
}

TEST_CASE("draining the rest of a pool with failed places is not a failure, but losing it is") {
  world w(with_workers(2));
  w.start_all();
  for (std::uint32_t i = 1; i <= 6; ++i) {
    w.kill({0, i});
    w.now += 10s;
    w.start_all();
  }
  REQUIRE(w.state(0) == child_state::failed);
  SECTION("drained") {
    w.children.drain(1);
    w.started();
    w.kill({1, 1}, normal_end);
    w.now += 1h;
    w.started();
    CHECK_FALSE(w.failed());
    w.children.restart(1, w.now);
    CHECK(w.started() == std::vector<worker_ref>{{1, 2}});
  }
  SECTION("lost") {
    for (std::uint32_t i = 1; i <= 6; ++i) {
      w.kill({1, i});
      w.now += 10s;
      w.start_all();
    }
    CHECK(w.failed());
  }
}

TEST_CASE("a start that fails is retried, whatever the restart type, until it has failed too often") {
  auto settings = with_workers(2);
  settings.restart.type = restart_type::temporary;
  world w(settings);
  auto refs = w.started();
  for (std::uint32_t i = 1; i <= 6; ++i) {
    REQUIRE(w.state(0) == child_state::starting);
    w.children.start_failed({0, i}, w.now, {errc::system, "no more processes", EAGAIN});
    w.now += 5s;
    w.started();
  }
  CHECK(w.state(0) == child_state::failed);
  CHECK_FALSE(w.failed());
}

TEST_CASE("a closed pool starts no worker") {
  world w(with_workers(1));
  w.start_all();
  w.children.close();
  w.kill({0, 1}, fruitful_crash);
  CHECK(w.started().empty());
  CHECK(w.children.next_deadline() == never);
}

TEST_CASE("a pool that is closed before it is opened starts no worker") {
  world w(with_workers(1));
  w.children.close();
  w.children.open(w.now);
  CHECK(w.started().empty());
  CHECK(w.children.next_deadline() == never);
}

// ---- loader hosts -------------------------------------------------------------------------------------------

namespace {

pool_settings with_hosts(std::uint32_t workers) {
  pool_settings settings = with_workers(workers);
  settings.host_wait = 60s;
  return settings;
}

}  // namespace

TEST_CASE("a host's place starts when the host joins, and scaling the local workers does not affect it") {
  world w(with_hosts(2));
  w.start_all();
  w.children.host_joined(65, w.now);
  CHECK(w.started() == std::vector<worker_ref>{{65, 1}});
  w.children.child_ready({65, 1}, w.now);
  w.children.scale(1, w.now);
  w.start_all();
  CHECK(w.drained == std::vector<worker_ref>{{1, 1}});
  CHECK(w.state(65) == child_state::ready);
}

TEST_CASE("a worker whose host left is neither restarted nor counted until a host takes its place again") {
  world w(with_hosts(1));
  w.start_all();
  for (std::uint32_t i = 1; i <= 20; ++i) {
    w.children.host_joined(65, w.now);
    CHECK(w.started() == std::vector<worker_ref>{{65, i}});
    w.children.child_ready({65, i}, w.now);
    w.children.host_left(65);
    w.kill({65, i});
    CHECK(w.started().empty());
    CHECK(w.state(65) == child_state::stopped);
    w.now += 10ms;
  }
  CHECK_FALSE(w.failed());
  w.children.restart(65, w.now);
  CHECK(w.started().empty());
}

TEST_CASE("a pool whose only host rests waits for the operator, and once that host is gone, for a host") {
  world w(with_hosts(0));
  w.children.host_joined(65, w.now);
  w.start_all();
  w.children.child_ready({65, 1}, w.now);
  w.children.host_rests(65);
  w.start_all();
  CHECK(w.drained == std::vector<worker_ref>{{65, 1}});
  w.kill({65, 1});
  w.now += 1h;
  CHECK(w.started().empty());
  CHECK_FALSE(w.failed());
  SECTION("the operator wants it again") {
    w.children.host_joined(65, w.now);
    CHECK(w.started() == std::vector<worker_ref>{{65, 2}});
  }
  SECTION("the host is lost") {
    w.children.host_left(65);
    w.start_all();
    CHECK_FALSE(w.failed());
    w.now += 60s;
    w.start_all();
    CHECK(w.failed());
  }
}

TEST_CASE(
    "without local workers a pool waits for a host, at the start and after the last one left, and then fails") {
  world w(with_hosts(0));
  CHECK(w.started().empty());
  w.now += 59s;
  CHECK(w.started().empty());
  CHECK_FALSE(w.failed());
  w.children.host_refused("loader host b was refused");  // the refusal is forgotten when a host joins
  w.children.host_joined(65, w.now);
  w.start_all();
  w.now += 1h;
  w.start_all();
  w.children.host_left(65);
  w.kill({65, 1});
  w.start_all();
  CHECK(w.children.next_deadline() == w.now + 60s);
  w.now += 59s;
  w.start_all();
  CHECK_FALSE(w.failed());
  w.now += 1s;
  w.start_all();
  REQUIRE(w.failed());
  CHECK(w.failed()->code == errc::workers_exhausted);
  CHECK(w.failed()->message == "there is no loader worker, and no loader host has joined for 1 m 0 s ([loader.hosts] wait)");
}

TEST_CASE("a pool that refuses every host fails with the last refusal") {
  world w(with_hosts(0));
  w.start_all();
  w.children.host_refused("loader host a was refused: its dataset has 41 samples");
  w.now += 60s;
  w.start_all();
  REQUIRE(w.failed());
  CHECK(w.failed()->message ==
        "there is no loader worker, and no loader host has joined for 1 m 0 s ([loader.hosts] wait); loader host a was refused: its "
        "dataset has 41 samples");
}

TEST_CASE("a pool that is closed restarts no worker, so no place waits for a restart") {
  pool_settings settings = with_workers(2);
  settings.restart.backoff_base = 10s;
  world w(settings);
  w.start_all();
  w.kill({0, 1});
  w.now += 1ms;
  for (const worker_ref who : w.started()) w.children.child_ready(who, w.now);
  w.kill({0, 2});
  REQUIRE(w.state(0) == child_state::backoff);
  w.children.close();
  CHECK(w.state(0) == child_state::stopped);
  w.kill({1, 1});
  CHECK(w.state(1) == child_state::stopped);
  w.now += 1min;
  CHECK(w.started().empty());
}
