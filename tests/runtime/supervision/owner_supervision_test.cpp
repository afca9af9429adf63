// Supervision of the GPU owner, without a process: messages to it, when it is terminated, and the
// consequences of its deaths.
#include "runtime/supervision/owner_supervision.hpp"

#include "runtime/base/exit_codes.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;
using process::exit_report;

namespace {

constexpr steady_time begin = steady_time(1h);

owner_settings usual() {
  owner_settings s;
  s.restart.intensity_max = 3;
  s.restart.intensity_within = 10min;
  s.clocks = {120s, 10s, 300s};
  s.ending.after_closed_link = 1s;
  return s;
}

owner_end signalled(int number) {
  return {{7, exit_report::how::signalled, number, {}}, std::nullopt, "", false};
}
owner_end exited(int code, std::string last_lines = "") {
  return {{7, exit_report::how::exited, code, {}}, std::nullopt, std::move(last_lines), false};
}

upload_order upload(std::uint64_t number, stream_position position, std::uint64_t era = 0) {
  return {number, era, 0, position, 0, position, 0, 0, {position}};
}

/// Feeds events and collects commands.
struct stage {
  explicit stage(const owner_settings& settings = usual()) : owner(settings, now) {
    owner.open(now);
    look();
  }

  void look() {
    for (owner_command& c : owner.advance(now)) commands.push_back(std::move(c));
  }
  void pass(nanoseconds time) {
    for (const steady_time until = now + time; now < until;) {
      now = std::min(now + nanoseconds(100ms), until);
      owner_sign sign;
      sign.heartbeats = ++beats;
      sign.in_hand = in_hand;
      sign.wait_channel = waits_in;
      owner.look(now, sign);
      look();
    }
  }
  void be_ready() {
    const std::uint32_t i = owner.incarnation();
    owner.started(i, 7);
    owner.greeted(i, now, "");
    owner.opened(i, now);
    look();
  }
  void die(const owner_end& end) {
    owner.exited(owner.incarnation(), now, end);
    look();
  }
  template <class Command>
  [[nodiscard]] std::vector<Command> all() const {
    std::vector<Command> found;
    for (const owner_command& c : commands) {
      if (const auto* one = std::get_if<Command>(&c)) found.push_back(*one);
    }
    return found;
  }
  [[nodiscard]] std::vector<int> signals() const {
    std::vector<int> numbers;
    for (const send_signal& s : all<send_signal>()) numbers.push_back(s.number);
    return numbers;
  }

  steady_time now = begin;
  owner_supervision owner;
  std::vector<owner_command> commands;
  std::uint64_t beats = 0;
  std::optional<std::uint32_t> in_hand;
  std::string waits_in;
};

}  // namespace

TEST_CASE("uploads ordered before the owner's introduction are sent after it in order, once") {
  stage s;
  s.owner.order(upload(1, 0));
  s.owner.order(upload(2, 1));
  s.look();
  CHECK(s.all<send_uploads>().empty());
  s.be_ready();
  REQUIRE(s.all<send_uploads>().size() == 1);
  CHECK(s.all<send_uploads>()[0].uploads.size() == 2);
  CHECK(s.all<owner_is_ready>().size() == 1);
  s.look();
  CHECK(s.all<send_uploads>().size() == 1);
}

TEST_CASE(
    "an owner killed from outside is restarted at once or after its backoff, however often that happens") {
  stage s;
  for (int i = 0; i < 50; ++i) {
    s.be_ready();
    s.die(signalled(SIGKILL));
    s.pass(30s);
  }
  CHECK(s.owner.restarts() == 50);
  CHECK(s.all<owner_failed>().empty());
}

TEST_CASE("an owner that the kernel's OOM killer kills repeatedly is given up") {
  stage s;
  owner_end end = signalled(SIGKILL);
  end.oom_killed = true;
  for (int i = 0; i < 4 && s.all<owner_failed>().empty(); ++i) {
    s.be_ready();
    s.die(end);
    s.pass(1s);
  }
  REQUIRE(s.all<owner_failed>().size() == 1);
  CHECK(s.all<owner_died>()[0].report.cause == death_cause::oom);
}

TEST_CASE("an owner that crashes without a batch too often ends the run with its last output") {
  stage s;
  for (int i = 0; i < 4; ++i) {
    s.be_ready();
    s.die(exited(3, "no more room"));
    s.pass(1s);
  }
  REQUIRE(s.all<owner_failed>().size() == 1);
  CHECK(s.all<owner_failed>()[0].reason.message ==
        "the GPU owner (pid 7) ended with exit code 3, after 3 restarts without a batch in between; "
        "[gpu.restart] allows no more: no more room");
  CHECK(s.owner.stage() == owner_stage::failed);
}

TEST_CASE(
    "a start that fails for lack of descriptors is retried after a backoff, and one of a missing program is not") {
  stage s;
  s.owner.start_failed(1, s.now, {errc::system, "creating the pipe: too many open files", 24});
  s.look();
  CHECK(s.all<owner_not_started>().size() == 1);
  s.pass(300ms);
  CHECK(s.all<start_owner_process>().size() == 2);
  s.be_ready();
  CHECK(s.owner.stage() == owner_stage::ready);
  s.die(signalled(SIGSEGV));
  s.pass(1s);
  s.owner.start_failed(s.owner.incarnation(), s.now, {errc::worker_program, "penstock-gpu is missing", 0});
  s.look();
  CHECK(s.all<owner_failed>().at(0).reason.message == "penstock-gpu is missing");
}

TEST_CASE("consecutive failed starts of the owner count like deaths") {
  stage s;
  for (std::uint32_t i = 1; i <= 4; ++i) {
    REQUIRE(s.all<owner_failed>().empty());
    REQUIRE(s.owner.incarnation() == i);
    s.owner.start_failed(i, s.now, {errc::system, "creating the pipe: too many open files", 24});
    s.pass(30s);
  }
  CHECK(s.all<owner_not_started>().size() == 3);
  REQUIRE(s.all<owner_failed>().size() == 1);
  CHECK(s.all<owner_failed>()[0].reason.message ==
        "creating the pipe: too many open files; all the retries that [gpu.restart] allows have failed");
}

TEST_CASE("an owner start that does not return is cancelled, and the error names the program") {
  stage s;
  s.waits_in = "executing '/mnt/penstock-gpu'";
  s.now += 1h;  // no poll in between
  s.look();
  s.pass(119s);
  CHECK(s.signals().empty());
  s.pass(2s);
  CHECK(s.signals() == std::vector{SIGKILL});
  CHECK(s.all<killing_begins>().at(0).reason ==
        "executing '/mnt/penstock-gpu' has not returned for 2 m 0 s: its file system is not responding");
  SECTION("SIGKILL helps, and the start is retried") {
    s.owner.start_failed(1, s.now, {errc::system, "it was given up", 0});
    s.look();
    CHECK(s.all<owner_not_started>().at(0).reason.message == s.all<killing_begins>().at(0).reason);
    CHECK(s.all<start_owner_process>().size() == 2);
    s.be_ready();
    s.pass(10min);
    CHECK(s.signals().size() == 1);
  }
  SECTION("SIGKILL does not help") {
    s.pass(5s);
    CHECK(s.all<owner_failed>().at(0).reason.message ==
          "the GPU owner could not be started: executing '/mnt/penstock-gpu' has not returned for 2 m 0 s: "
          "its file system is not responding");
  }
}

TEST_CASE("a batch on which two owners crashed fails the run or is skipped, and is named") {
  for (const poison_rule rule : {poison_rule::fail, poison_rule::skip}) {
    owner_settings settings = usual();
    settings.on_poison = rule;
    stage s(settings);
    for (std::uint64_t era = 0; era < 2; ++era) {
      s.be_ready();
      s.owner.order(upload(era + 1, 17, era));
      s.look();
      owner_end end = signalled(SIGSEGV);
      end.in_hand = static_cast<std::uint32_t>(era + 1);
      s.die(end);
      s.pass(1s);
    }
    CHECK(s.all<owner_died>()[0].in_hand == "batch 17 of epoch 0 (samples 17)");
    if (rule == poison_rule::fail) {
      CHECK(s.all<owner_failed>().at(0).reason.message.starts_with(
          "batch 17 of epoch 0 (samples 17) has killed 2"));
    } else {
      CHECK(s.all<uploads_lost>().at(1).left_out->position == 17);
      CHECK(s.all<owner_failed>().empty());
    }
  }
}

TEST_CASE("an owner of another version is killed and ends the run, as a worker of another version does") {
  stage s;
  s.owner.started(1, 7);
  s.owner.greeted(1, s.now, "it speaks protocol 999, but this session speaks 1");
  s.look();
  CHECK(s.all<owner_failed>().at(0).reason.message.find("protocol 999") != std::string::npos);
  CHECK(s.signals() == std::vector{SIGKILL});
}

TEST_CASE("acknowledgements out of order fence the owner, and its batches go to the next owner") {
  stage s;
  s.be_ready();
  s.owner.order(upload(1, 0));
  s.owner.order(upload(2, 1));
  s.look();
  CHECK(s.owner.copied(1, s.now, 1));
  CHECK(s.owner.copied(1, s.now, 2));
  CHECK_FALSE(s.owner.delivered(1, s.now, 2));
  CHECK_FALSE(s.owner.delivered(1, s.now, 1));  // the owner's messages are ignored from now on
  s.look();
  CHECK(s.signals() == std::vector{SIGKILL});
  s.die(signalled(SIGKILL));
  CHECK(s.all<owner_died>().at(0).report.cause == death_cause::protocol);
  CHECK(s.all<uploads_lost>().at(0).era == 1);
}

TEST_CASE("if a sink hangs on a batch, its owner gets SIGABRT, then SIGKILL, and the batch is suspected") {
  stage s;
  s.be_ready();
  s.owner.order(upload(1, 4));
  s.look();
  s.in_hand = 1;
  s.pass(301s);
  CHECK(s.signals() == std::vector{SIGABRT, SIGCONT});
  CHECK(s.all<killing_begins>().at(0).reason ==
        "its sink has been working on batch 4 of epoch 0 (samples 4) for 5 m 0 s");
  s.pass(2s);
  CHECK(s.signals().back() == SIGKILL);
  owner_end end = signalled(SIGKILL);
  end.in_hand = 1;
  s.die(end);
  CHECK(s.all<owner_died>().at(0).report.cause == death_cause::hang);
  CHECK(s.all<owner_died>().at(0).report.sequence == 4);
}

TEST_CASE(
    "closing a complete stream lets the sink finish, and an owner that dies before that is replaced to finish it") {
  stage s;
  s.be_ready();
  s.owner.close(s.now, true, 8s);
  s.look();
  CHECK(s.all<stop_owner_process>().at(0).whole);
  SECTION("it exits") {
    s.die(exited(0));
    CHECK(s.all<owner_closed>().size() == 1);
    CHECK(s.all<owner_died>().empty());
  }
  SECTION("it dies, and another owner finishes") {
    s.die(exited(1));
    s.pass(1s);
    CHECK(s.all<owner_died>().at(0).report.cause == death_cause::exit);
    s.be_ready();
    CHECK(s.all<stop_owner_process>().size() == 2);
    s.die(exited(0));
    CHECK(s.all<owner_closed>().size() == 1);
  }
  SECTION("it does not exit, so it is killed, and the run fails with an error that says so") {
    s.pass(8s);
    CHECK(s.signals() == std::vector{SIGKILL});
    s.die(signalled(SIGKILL));
    CHECK(s.all<owner_failed>().at(0).reason.message ==
          "the sink did not finish in time: the GPU owner (pid 7) was killed");
    CHECK(s.all<owner_closed>().size() == 1);
  }
  SECTION("owners that are repeatedly killed from outside do not delay the end forever") {
    for (int i = 0; i < 20 && s.all<owner_closed>().empty(); ++i) {
      s.die(signalled(SIGKILL));
      s.pass(1s);
      if (s.owner.stage() == owner_stage::starting) s.be_ready();
    }
    CHECK(s.all<owner_failed>().at(0).reason.message.starts_with("the sink did not finish in time"));
    CHECK(s.all<owner_closed>().size() == 1);
  }
  SECTION("an operator stops it at once") {
    s.owner.close(s.now, false, 0s);
    s.look();
    CHECK(s.signals() == std::vector{SIGKILL});
  }
}

TEST_CASE(
    "while no owner runs that could finish the sink, time during which the session is suspended does not count") {
  stage s;
  s.be_ready();
  s.owner.close(s.now, true, 8s);
  s.look();
  s.die(exited(1));
  s.pass(1s);
  s.now += 1h;
  s.look();
  CHECK(s.all<owner_failed>().empty());
  SECTION("the next owner finishes it") {
    s.be_ready();
    CHECK(s.all<stop_owner_process>().size() == 2);
    s.die(exited(0));
    CHECK(s.all<owner_failed>().empty());
  }
  SECTION("the rest of the time counts") {
    s.pass(8s);
    CHECK(s.all<owner_failed>().at(0).reason.message.starts_with("the sink did not finish in time"));
  }
  CHECK(s.all<owner_closed>().size() == 1);
}

TEST_CASE(
    "an owner killed because it did not stop in time leaves a death, and one that stops in time leaves none") {
  stage s;
  s.be_ready();
  s.owner.close(s.now, false, 4s);
  s.look();
  SECTION("it stops in time") {
    s.pass(3s);
    s.die(exited(0));
    CHECK(s.all<owner_died>().empty());
  }
  SECTION("it does not stop in time") {
    s.pass(4s);
    CHECK(s.signals() == std::vector{SIGKILL});
    s.die(signalled(SIGKILL));
    REQUIRE(s.all<owner_died>().size() == 1);
    CHECK(s.all<owner_died>()[0].report.cause == death_cause::stopped);
    CHECK(s.all<owner_died>()[0].report.ignored_stop_seconds == 4);
    CHECK(s.all<owner_died>()[0].unasked);
  }
  CHECK(s.all<owner_closed>().size() == 1);
}

TEST_CASE(
    "if an owner is being replaced while its stream is closed, the run does not fail, and the next owner finishes") {
  stage s;
  s.be_ready();
  s.owner.restart(s.now);
  s.look();
  s.owner.close(s.now, true, 8s);
  s.look();
  s.die(signalled(SIGKILL));
  CHECK(s.all<owner_failed>().empty());
  s.pass(1s);
  s.be_ready();
  CHECK(s.all<stop_owner_process>().size() == 2);
  s.die(exited(0));
  CHECK(s.all<owner_closed>().size() == 1);
}

TEST_CASE("an operator's restart never counts and skips the backoff") {
  stage s;
  for (int i = 0; i < 20; ++i) {
    s.be_ready();
    s.owner.restart(s.now);
    s.look();
    s.die(signalled(SIGKILL));
    CHECK(s.all<owner_died>().back().report.cause == death_cause::stopped);
    CHECK_FALSE(s.all<owner_died>().back().unasked);
  }
  CHECK(s.all<start_owner_process>().size() == 21);
  s.be_ready();
  s.die(exited(3));
  s.die(exited(3));
  s.be_ready();
  s.die(exited(3));
  CHECK(s.all<owner_died>().back().unasked);
  CHECK(s.owner.stage() == owner_stage::backoff);
  s.owner.restart(s.now);
  CHECK(s.owner.stage() == owner_stage::starting);
}

TEST_CASE("an owner that survives SIGKILL ends the run, because its device memory stays allocated") {
  stage s;
  s.be_ready();
  s.owner.link_closed(1, s.now, "garbage");
  s.pass(6s);
  CHECK(s.all<owner_failed>().at(0).reason.message.find("survives SIGKILL") != std::string::npos);
}

TEST_CASE("after an hour's suspension a session reports no child as hanging, unkillable or late") {
  stage s;
  s.be_ready();
  s.pass(1s);
  s.owner.restart(s.now);
  s.look();
  s.now += 1h;
  s.owner.look(s.now, {});
  s.look();
  CHECK(s.all<owner_failed>().empty());
  s.die(signalled(SIGKILL));
  CHECK(s.all<owner_died>().at(0).report.cause == death_cause::stopped);
}

TEST_CASE("a start is not retried after an exit code that the next process would repeat") {
  for (const int code :
       {exit_codes::permission, exit_codes::configuration, exit_codes::protocol, exit_codes::hardware}) {
    stage s;
    s.be_ready();
    s.die(exited(code, "its reason"));
    CHECK(s.owner.restarts() == 0);
    CHECK(s.all<owner_failed>().at(0).reason.message.ends_with(": its reason"));
  }
}

TEST_CASE("a poisoned context is final if the next owner would have the same one") {
  owner_settings settings = usual();
  settings.cures_poison = false;
  stage s(settings);
  s.be_ready();
  s.owner.gave_up(1, s.now, {errc::device_poisoned, "an illegal access", 0});
  s.die(exited(exit_codes::poisoned));
  CHECK(s.owner.restarts() == 0);
  const failure reason = s.all<owner_failed>().at(0).reason;
  CHECK(reason.code == errc::device_poisoned);
  CHECK(reason.message == "an illegal access");
}

TEST_CASE("an owner that reports a mistake or a full disk and exits has failed but not died") {
  for (const auto& [why, code] : {std::pair{errc::sink, exit_codes::failed}, std::pair{errc::device_unavailable, exit_codes::configuration}}) {
    stage s;
    s.be_ready();
    s.owner.gave_up(1, s.now, {why, "no space left on device", 0});
    s.die(exited(code));
    CHECK(s.all<owner_died>().empty());
    CHECK(s.all<owner_failed>().at(0).reason.message == "no space left on device");
  }
}

TEST_CASE("signals of the fault injector are named as such") {
  stage s;
  s.be_ready();
  owner_end end = signalled(SIGKILL);
  end.injected = true;
  s.die(end);
  CHECK(s.all<owner_died>().at(0).report.reason == text_of_injected_signal);
}
