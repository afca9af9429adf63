// Supervision of loader workers, without processes: introductions, ends and replacements. Random orders of events are in
// worker_model_test.cpp.
#include "runtime/supervision/worker_supervision.hpp"

#include "runtime/base/exit_codes.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;
using process::exit_report;

namespace {

constexpr std::uint32_t places_max = 8;

worker_rules usual(std::uint32_t workers = 1) {
  worker_rules rules;
  rules.pool.workers = workers;
  rules.pool.sacrificial_place = places_max;
  return rules;
}

exit_report signalled(int number) {
  return {7, exit_report::how::signalled, number, {}};
}
exit_report exited(int code) {
  return {7, exit_report::how::exited, code, {}};
}

/// Feeds events and collects commands.
struct stage {
  explicit stage(const worker_rules& rules = usual()) : workers(rules) {
    workers.open(now);
    look();
  }
  void look() {
    for (worker_command& c : workers.advance(now)) commands.push_back(std::move(c));
  }
  void pass(nanoseconds time, bool beats_too = true) {
    for (const steady_time until = now + time; now < until;) {
      now = std::min(now + nanoseconds(100ms), until);
      worker_sign sign;
      sign.heartbeats = beats_too ? ++beats : beats;
      sign.busy = busy;
      sign.traced = traced;
      sign.work = work;
      sign.worked = worked;
      workers.look(now, {sign});
      look();
    }
  }
  [[nodiscard]] worker_ref who(std::uint32_t place = 0) const {
    for (const auto& p : workers.places().places()) {
      if (p.worker == place) return {place, p.incarnation};
    }
    return {place, 0};
  }
  void be_ready(std::uint32_t place = 0) {
    const worker_ref w = who(place);
    workers.started(w, 7);
    workers.greeted(w, now, "");
    REQUIRE(workers.described(w, now));
    REQUIRE(workers.prepared(w, now, true));
    workers.ready(w, now);
    look();
  }
  void die(const exit_report& end, std::uint64_t samples = 1, bool blamed = false) {
    const worker_ref w = who();
    workers.exited(w, now, end, false);
    look();
    settled = workers.blame_decided(w, now, blamed, samples, "its last output");
    look();
  }
  template <class Command>
  [[nodiscard]] std::vector<Command> all() const {
    std::vector<Command> found;
    for (const worker_command& c : commands) {
      if (const auto* one = std::get_if<Command>(&c)) found.push_back(*one);
    }
    return found;
  }
  [[nodiscard]] std::vector<int> signals() const {
    std::vector<int> numbers;
    for (const signal_worker& s : all<signal_worker>()) numbers.push_back(s.number);
    return numbers;
  }

  steady_time now = steady_time(1h);
  worker_supervision workers;
  std::vector<worker_command> commands;
  worker_supervision::settled settled;
  std::uint64_t beats = 0;
  bool busy = false;
  bool traced = false;
  std::string work = "it has been working on 'cat.jpg'";
  nanoseconds worked{0};
};

}  // namespace

TEST_CASE("a worker is introduced step by step and handed over when it is ready") {
  stage s;
  CHECK(s.all<start_worker>().size() == 1);
  s.be_ready();
  CHECK(s.all<introduce_worker>().size() == 1);
  CHECK(s.all<hand_over_worker>().size() == 1);
}

TEST_CASE(
    "a sacrificial worker that cannot be started is given up with the reason, and the loaders continue") {
  stage s;
  s.be_ready();
  s.workers.want_sacrificial(true, s.now);
  s.look();
  for (int i = 0; i < 6; ++i) {
    REQUIRE(s.all<sacrificial_failed>().empty());
    s.workers.start_refused(s.who(places_max), s.now, {errc::system, "no more processes", EAGAIN});
    s.pass(5s);
  }
  REQUIRE(s.all<sacrificial_failed>().size() == 1);
  CHECK(s.all<sacrificial_failed>()[0].reason ==
        "worker 8 could not be started: no more processes, too many times in a row");
  CHECK(s.all<workers_failed>().empty());
  CHECK(s.signals().empty());
}

TEST_CASE("a worker with an unexpected message is killed, and its later messages are ignored") {
  const worker_ref w{0, 1};
  const auto breaches = {+[](worker_supervision& s, worker_ref who, steady_time now) {
                           static_cast<void>(s.described(who, now));
                         },
                         +[](worker_supervision& s, worker_ref who, steady_time now) { s.ready(who, now); },
                         +[](worker_supervision& s, worker_ref who, steady_time now) {
                           s.greeted(who, now, "");
                           s.greeted(who, now, "");
                         },
                         +[](worker_supervision& s, worker_ref who, steady_time now) {
                           s.gave_up(who, now, {errc::dataset, "a", 0});
                           s.gave_up(who, now, {errc::dataset, "b", 0});
                         }};
  for (const auto& breach : breaches) {
    stage s;
    s.workers.started(w, 7);
    breach(s.workers, w, s.now);
    s.look();
    CHECK(s.signals() == std::vector{SIGKILL});
    CHECK_FALSE(s.workers.described(w, s.now));
    s.die(signalled(SIGKILL));
    CHECK(s.settled.cause == "protocol");
  }
}

TEST_CASE("protocol violations count even if the worker completes samples before each") {
  stage s;
  for (int deaths = 0; deaths <= 5; ++deaths) {
    s.be_ready();
    s.workers.link_closed(s.who(), s.now, "");
    s.pass(1s);
    s.die(signalled(SIGKILL), 7);
    CHECK(s.settled.cause == "protocol");
    s.pass(8s);
  }
  CHECK(s.workers.places().places().front().state == child_state::failed);
}

TEST_CASE("a worker of another version is killed and ends the run") {
  stage s;
  s.workers.started(s.who(), 7);
  s.workers.greeted(s.who(), s.now, "it speaks protocol 999, but this session speaks 1");
  s.look();
  CHECK(s.all<workers_failed>().at(0).reason.message.find("protocol 999") != std::string::npos);
  CHECK(s.signals() == std::vector{SIGKILL});
}

TEST_CASE("the error about a worker without hello asks whether its main calls worker_main") {
  stage s;
  s.workers.started(s.who(), 7);
  s.pass(31s);
  CHECK(s.all<killing_worker>().at(0).reason ==
        "it was not ready within 30 s of its start; it never said hello: does its main() call "
        "penstock::worker_main?");
}

TEST_CASE(
    "a program that exits with 0 before its hello ends the run at once, and the error says what it must call") {
  stage s;
  s.workers.started(s.who(), 7);
  SECTION("by itself") {
    s.die(exited(exit_codes::finished), 0);
    REQUIRE(s.all<workers_failed>().size() == 1);
    CHECK(s.all<workers_failed>()[0].reason.code == errc::worker_program);
    CHECK(s.all<workers_failed>()[0].reason.message.starts_with(
        "worker 0 ended with exit 0 before its hello ([loader] command is not a worker program: its main() "
        "calls neither "
        "penstock::worker_main nor, for a pool, penstock::job_main); restarting would not help"));
  }
  SECTION("unless it was ordered to exit") {
    s.workers.restart(0, s.now);
    s.look();
    s.die(exited(exit_codes::finished), 0);
    CHECK(s.all<workers_failed>().empty());
  }
  SECTION("unless its exit code is another one, which the machine may have caused") {
    s.die(exited(exit_codes::failed), 0);
    CHECK(s.all<workers_failed>().empty());
  }
}

TEST_CASE("if programs that are no workers fail again and again, the error says what a worker program has to call") {
  stage s;
  for (std::uint32_t i = 0; s.all<workers_failed>().empty() && i < 100; ++i) {
    s.workers.started(s.who(), 7);
    s.die(exited(exit_codes::failed), 0);
    s.now += 1s;
    s.look();
  }
  REQUIRE(s.all<workers_failed>().size() == 1);
  CHECK(s.all<workers_failed>()[0].reason.message.find(
            "ended with exit 1 before its hello (a worker program calls penstock::worker_main or, for a pool, penstock::job_main)") !=
        std::string::npos);
}

TEST_CASE("an immediate restart by an operator does not wait for the worker's sample, and blames none") {
  stage s;
  s.be_ready();
  s.busy = true;
  s.workers.restart(0, s.now);
  s.pass(5s);
  CHECK(s.signals().empty());
  s.workers.restart(0, s.now, true);
  s.look();
  CHECK(s.signals() == std::vector{SIGKILL});
  s.workers.exited(s.who(), s.now, signalled(SIGKILL), false);
  s.look();
  REQUIRE(s.all<decide_blame>().size() == 1);
  CHECK_FALSE(s.all<decide_blame>()[0].blames_sample);
}

TEST_CASE(
    "a start that does not return is given up after the start deadline, and the error names the program") {
  stage s;
  s.work = "executing '/mnt/worker'";
  s.now += 1h;  // no poll in between
  s.look();
  s.pass(29s);
  CHECK(s.signals().empty());
  s.pass(2s);
  CHECK(s.signals() == std::vector{SIGKILL});
  CHECK_FALSE(s.all<killing_worker>().at(0).pid);
  CHECK(s.all<killing_worker>().at(0).reason ==
        "executing '/mnt/worker' has not returned for 30 s: its file system is not responding");
  SECTION("no other worker is ready within a minute") {
    s.workers.start_refused(s.who(), s.now, {errc::system, "it was given up", 0});
    s.pass(31s);
    REQUIRE(s.all<workers_failed>().size() == 1);
    CHECK(s.all<workers_failed>()[0].reason.message.ends_with(
        "worker 0 could not be started: executing '/mnt/worker' has not returned for 30 s: its file system is not responding"));
  }
  SECTION("it is tried again") {
    s.workers.start_refused(s.who(), s.now, {errc::system, "it was given up", 0});
    s.pass(1s);
    CHECK(s.who() == worker_ref{0, 2});
    CHECK(s.all<start_worker>().size() == 2);
    s.be_ready();
    s.pass(1min);
    CHECK(s.signals().size() == 1);
  }
  SECTION("SIGKILL does not help, and no worker is left") {
    s.pass(5s);
    CHECK_FALSE(s.all<write_off_worker>().at(0).pid);
    REQUIRE(s.all<workers_failed>().size() == 1);
    CHECK(s.all<workers_failed>()[0].reason.message.find("executing '/mnt/worker' has not returned") !=
          std::string::npos);
  }
  SECTION("it returns after all, and is killed") {
    s.workers.started(s.who(), 7);
    s.die(signalled(SIGKILL), 0);
    CHECK(s.settled.cause == "hang");
  }
}

TEST_CASE("when the workers' time is over, closing ends a start that does not return") {
  stage s;
  s.workers.close(s.now, 3s);
  s.look();
  CHECK(s.signals().empty());
  s.pass(3s);
  CHECK(s.signals() == std::vector{SIGKILL});
  s.workers.start_refused(s.who(), s.now, {errc::system, "it was given up", 0});
  s.look();
  CHECK(s.all<workers_closed>().size() == 1);
}

TEST_CASE("a sample that takes too long ends its worker and is named, unless a debugger holds the worker") {
  stage s;
  s.be_ready();
  s.busy = true;
  SECTION("hangs") {
    s.pass(31s);
    CHECK(s.all<killing_worker>().at(0).reason == "it has been working on 'cat.jpg' for 30 s");
    CHECK(s.signals() == std::vector{SIGABRT, SIGCONT});
    s.die(signalled(SIGABRT));
    CHECK(s.settled.cause == "hang");
    CHECK(s.all<decide_blame>().at(0).blames_sample);
    CHECK(s.all<decide_blame>().at(0).took_too_long);
  }
  SECTION("hangs, and the supervisor first saw it late") {
    s.worked = 30'900ms;
    s.pass(31s);
    CHECK(s.all<killing_worker>().at(0).reason == "it has been working on 'cat.jpg' for 30.9 s");
  }
  SECTION("crashes before that") {
    s.die(signalled(SIGSEGV));
    CHECK(s.all<decide_blame>().at(0).blames_sample);
    CHECK_FALSE(s.all<decide_blame>().at(0).took_too_long);
  }
  SECTION("debugged") {
    s.traced = true;
    s.pass(10min);
    CHECK(s.signals().empty());
  }
}

TEST_CASE(
    "a worker over its memory limit stops after its current batch, which blames no sample and is not counted") {
  worker_rules rules = usual();
  rules.memory_max_bytes = 1000;
  stage s(rules);
  for (int i = 0; i < 20; ++i) {
    s.be_ready();
    s.workers.measured(s.who(), 1001, 0);
    s.look();
    CHECK(s.all<retire_worker>().back().after_current_batch);
    s.workers.told_to_stop(s.who(), s.now);
    s.pass(10s);
    CHECK(s.signals().back() == SIGKILL);
    s.die(signalled(SIGKILL), 0);
    CHECK(s.settled.cause == "memory");
    CHECK_FALSE(s.all<decide_blame>().back().blames_sample);
  }
  CHECK(s.all<workers_failed>().empty());
  CHECK(s.all<memory_exceeded>().size() == 20);
}

TEST_CASE("the reason for the end of a worker over its memory limit has the most that it was seen using, also after it began to drain") {
  worker_rules rules = usual();
  rules.memory_max_bytes = 600U << 20U;
  stage s(rules);
  s.be_ready();
  CHECK(s.workers.measured(s.who(), 600U << 20U, 0) == 0);
  CHECK(s.workers.measured(s.who(), 804U << 20U, 0) == 804U << 20U);
  s.look();
  CHECK(s.workers.measured(s.who(), 1178U << 20U, 0) == 1178U << 20U);
  CHECK(s.workers.measured(s.who(), 900U << 20U, 0) == 1178U << 20U);
  CHECK(s.all<memory_exceeded>().size() == 1);
  CHECK(s.all<retire_worker>().size() == 1);
  s.workers.told_to_stop(s.who(), s.now);
  s.workers.exited(s.who(), s.now, exited(0), false);
  CHECK(s.workers.ending_of(s.who())->fault(exited(0)) == "it used 1.15 GiB of private memory, but [loader.limits] memory allows 600 MiB");
}

TEST_CASE("an operator who kills a worker over its memory limit is the cause of its end") {
  worker_rules rules = usual();
  rules.memory_max_bytes = 1000;
  stage s(rules);
  s.be_ready();
  s.workers.measured(s.who(), 1001, 0);
  s.look();
  s.workers.restart(0, s.now, true);
  s.look();
  CHECK(s.signals() == std::vector{SIGKILL});
  s.workers.exited(s.who(), s.now, signalled(SIGKILL), false);
  CHECK(s.workers.ending_of(s.who())->cause_of(signalled(SIGKILL)) == death_cause::stopped);
  CHECK(s.workers.ending_of(s.who())->fault(signalled(SIGKILL)).empty());
}

TEST_CASE("a process that uses the GPU is reported once, or killed, depending on the rule") {
  for (const exclusive_rule rule : {exclusive_rule::off, exclusive_rule::report, exclusive_rule::enforce}) {
    worker_rules rules = usual();
    rules.exclusive = rule;
    stage s(rules);
    s.be_ready();
    for (int i = 0; i < 3; ++i) s.workers.uses_gpu(s.who(), s.now, "it uses the GPU");
    s.look();
    CHECK(s.all<gpu_use_reported>().size() == (rule == exclusive_rule::report ? 1 : 0));
    CHECK(s.signals().size() == (rule == exclusive_rule::enforce ? 1 : 0));
    CHECK(s.workers.audits_gpu_use(s.who()) == (rule == exclusive_rule::report));
  }
}

TEST_CASE("closing stops every worker, kills those that stay, starts none and is reported once") {
  stage s(usual(2));
  s.be_ready(0);
  s.workers.close(s.now, 10s);
  s.look();
  CHECK(s.all<stop_worker>().size() == 1);
  s.workers.started(s.who(1), 8);  // the start was already in progress
  s.look();
  CHECK(s.all<stop_worker>().size() == 2);
  s.pass(10s);
  CHECK(s.signals().size() == 2);
  for (const std::uint32_t place : {0U, 1U}) {
    const worker_ref w = s.who(place);
    s.workers.exited(w, s.now, signalled(SIGKILL), false);
    s.look();
    const auto news = s.workers.blame_decided(w, s.now, false, 5, "");
    CHECK(news.worth_telling);
    CHECK(news.ignored_stop == nanoseconds(10s));
    CHECK_FALSE(news.unasked);
    s.look();
  }
  CHECK(s.all<workers_closed>().size() == 1);
  CHECK(s.all<start_worker>().size() == 2);
}

TEST_CASE("no event reports a worker that stops in time when the session closes") {
  stage s;
  s.be_ready();
  s.workers.close(s.now, 10s);
  s.pass(9s);
  s.die(exited(0));
  CHECK_FALSE(s.settled.worth_telling);
  CHECK(s.all<workers_closed>().size() == 1);
}

TEST_CASE("a worker that leaves with its host is not an event, but the restart of a remote worker is") {
  constexpr std::uint32_t place = 65;
  for (const bool restarts : {false, true}) {
    stage s;
    s.workers.host_joined(place, s.now);
    s.look();
    s.be_ready(place);
    const worker_ref w = s.who(place);
    restarts ? s.workers.restart(place, s.now, false) : s.workers.host_rests(place);
    s.look();
    s.workers.told_to_stop(w, s.now);
    s.workers.exited(w, s.now, exited(0), false);
    s.look();
    const auto news = s.workers.blame_decided(w, s.now, false, 5, "");
    CHECK_FALSE(news.unasked);
    CHECK(news.worth_telling == restarts);
  }
}

TEST_CASE(
    "workers that are not ready fail the run after a minute of polling, but not after an hour without polls") {
  stage s;
  s.workers.started(s.who(), 7);
  s.now += 1h;
  s.look();
  CHECK(s.all<workers_failed>().empty());
  s.pass(61s);
  CHECK(s.all<workers_failed>().size() == 1);
}

TEST_CASE("if a worker gives up, its reason is the run's error") {
  stage s;
  s.workers.started(s.who(), 7);
  s.workers.gave_up(s.who(), s.now, {errc::dataset, "no such folder", 0});
  s.die(exited(exit_codes::configuration), 0);
  CHECK(s.all<workers_failed>().at(0).reason.message == "worker 0: no such folder");
}
