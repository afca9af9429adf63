// Termination of one child: the sequence of signals, the reasons, and the meaning of its exit. A model test
// tries random orders of events against invariants.
#include "runtime/supervision/termination.hpp"

#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;
using process::exit_report;

namespace {

constexpr steady_time begin = steady_time(1h);

exit_report signalled(int number) {
  return {1, exit_report::how::signalled, number, {}};
}
exit_report exited(int code) {
  return {1, exit_report::how::exited, code, {}};
}

std::vector<int> signals_in(const std::vector<termination_command>& commands) {
  std::vector<int> numbers;
  for (const auto& c : commands) {
    if (const auto* s = std::get_if<send_signal>(&c)) numbers.push_back(s->number);
  }
  return numbers;
}

/// Polls every 100 ms until `until`; returns the signals sent.
std::vector<int> signals_until(termination& t, steady_time& now, steady_time until) {
  std::vector<int> numbers;
  while (now < until) {
    now = std::min(now + nanoseconds(100ms), until);
    for (const int n : signals_in(t.advance(now))) numbers.push_back(n);
  }
  return numbers;
}

}  // namespace

TEST_CASE(
    "a hanging child gets SIGABRT and SIGCONT at once and SIGKILL 2 s later, and is written off after 5 s more") {
  steady_time now = begin;
  termination t({}, now);
  t.hang(now, death_cause::heartbeat, "no heartbeat for 10 s");
  const auto first = t.advance(now);
  CHECK(std::get<killing_begins>(first.at(0)).reason == "no heartbeat for 10 s");
  CHECK(signals_in(first) == std::vector{SIGABRT, SIGCONT});
  CHECK(signals_until(t, now, begin + 1999ms).empty());
  CHECK(signals_until(t, now, begin + 2s) == std::vector{SIGKILL});
  CHECK(signals_until(t, now, begin + 6999ms).empty());
  CHECK_FALSE(t.written_off());
  const auto last = t.advance(begin + 7s);
  REQUIRE(last.size() == 1);
  CHECK(std::holds_alternative<survives_kill>(last[0]));
  CHECK(t.written_off());
  CHECK(t.next_deadline() == never);
}

TEST_CASE("a child that violates the protocol is killed at once, and its messages are ignored") {
  termination t({}, begin);
  t.violate(begin, "it sent message 3 at the wrong time");
  CHECK(t.fenced());
  const auto commands = t.advance(begin);
  CHECK(std::get<killing_begins>(commands.at(0)).cause == death_cause::protocol);
  CHECK(signals_in(commands) == std::vector{SIGKILL});
  CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::protocol);
  CHECK(t.cause_of(exited(0)) == death_cause::protocol);  // even if the child exits by itself after that
}

TEST_CASE("a child that cannot handle another signal is killed at once, for the given reason") {
  termination t({}, begin);
  t.kill(begin, death_cause::hang, "executing '/mnt/worker' has not returned for 30 s");
  const auto commands = t.advance(begin);
  CHECK(std::get<killing_begins>(commands.at(0)).reason ==
        "executing '/mnt/worker' has not returned for 30 s");
  CHECK(signals_in(commands) == std::vector{SIGKILL});
  CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::hang);
  t.kill(begin, death_cause::hang, "again");
  CHECK(t.advance(begin).empty());
}

TEST_CASE("a start that does not return is killed at its deadline, which does not count time without polls") {
  steady_time now = begin;
  termination t({}, now);
  t.starting(now, 30s);
  t.start_waits_for("executing '/mnt/worker'");
  CHECK(signals_until(t, now, begin + 10s).empty());
  now += 1h;  // the polling process was stopped
  CHECK(t.advance(now).empty());
  CHECK(signals_until(t, now, now + 19900ms).empty());
  CHECK(t.next_deadline() == now + 100ms);
  CHECK(signals_until(t, now, now + 100ms) == std::vector{SIGKILL});
  CHECK(t.cause() == death_cause::hang);
  CHECK(t.reason() == "executing '/mnt/worker' has not returned for 30 s: its file system is not responding");
}

TEST_CASE("a start that has returned has no deadline") {
  steady_time now = begin;
  termination t({}, now);
  t.starting(now, 30s);
  t.started();
  CHECK(t.next_deadline() == never);
  CHECK(signals_until(t, now, begin + 60s).empty());
}

TEST_CASE("a child that closes its link and exits within the grace period has exited by itself") {
  steady_time now = begin;
  termination t({}, now);
  t.link_closed(now);
  CHECK(signals_until(t, now, begin + 249ms).empty());
  CHECK(t.cause_of(exited(3)) == death_cause::exit);
  CHECK(t.cause_text(exited(3)) == "exit 3");

  SECTION("a child that keeps running is killed for a protocol violation") {
    const auto commands = t.advance(begin + 250ms);
    REQUIRE(commands.size() == 1);  // not announced: if the child is dying of a fault, the log must name that fault instead
    CHECK(signals_in(commands) == std::vector{SIGKILL});
    CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::protocol);
    CHECK(t.fault(signalled(SIGKILL)) == "it closed its link but did not exit");
    CHECK(t.cause_of(signalled(SIGSEGV)) == death_cause::signal);  // the child was already exiting by itself
  }
}

TEST_CASE(
    "a child killed by the OOM killer has that cause, even if its exit took longer than the grace period") {
  steady_time now = begin;
  termination t({}, now);
  SECTION("it ended in time") {
    t.link_closed(now);
    t.oom_killed(signalled(SIGKILL));
    CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::oom);
  }
  SECTION("it was killed again in the meantime") {
    t.link_closed(now);
    CHECK(signals_until(t, now, begin + 250ms) == std::vector{SIGKILL});
    t.oom_killed(signalled(SIGKILL));
    CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::oom);
    CHECK(t.cause_text(signalled(SIGKILL)) == "oom");
  }
  SECTION(
      "an OOM kill of another process does not explain the death of a child killed for a protocol violation") {
    t.violate(now, "it sent hello twice");
    CHECK(signals_in(t.advance(begin)) == std::vector{SIGKILL});
    t.link_closed(now);
    t.oom_killed(signalled(SIGKILL));
    CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::protocol);
  }
  SECTION("nor the death of a child that was killed because it hung") {
    t.hang(now, death_cause::hang, "sample 7 for 30 s");
    CHECK(signals_until(t, now, begin + 2s) == std::vector{SIGABRT, SIGCONT, SIGKILL});
    t.link_closed(now);
    t.oom_killed(signalled(SIGKILL));
    CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::hang);
  }
}

TEST_CASE("a child asked to stop has its time, which later orders can shorten but never extend") {
  steady_time now = begin;
  termination t({}, now);
  t.stop(now, 10s);
  CHECK(signals_until(t, now, begin + 3s).empty());
  t.stop(now, 2s);
  t.stop(now, 60s);
  CHECK(t.next_deadline() == begin + 5s);
  CHECK(signals_until(t, now, begin + 5s) == std::vector{SIGKILL});
  CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::stopped);
  CHECK(t.left_as_told(signalled(SIGKILL)));
  CHECK(t.left_as_told(exited(0)));
  CHECK_FALSE(t.left_as_told(signalled(SIGSEGV)));  // the child crashed during its exit
}

TEST_CASE("only a child that was killed after its time to stop has ignored the stop") {
  steady_time now = begin;
  termination late({}, now);
  late.stop(now, 10s);
  signals_until(late, now, begin + 3s);
  now += 1h;  // the polling process was stopped
  signals_until(late, now, now + 7100ms);
  CHECK(late.ignored_stop(signalled(SIGKILL)) == nanoseconds(10s));
  CHECK_FALSE(late.ignored_stop(exited(0)));  // the signal came too late

  termination in_time({}, begin);
  in_time.stop(begin, 10s);
  CHECK_FALSE(in_time.ignored_stop(exited(0)));
  CHECK_FALSE(in_time.ignored_stop(signalled(SIGKILL)));  // another process sent the SIGKILL

  termination leaving({}, begin);  // the child closes its link in time, but does not exit
  leaving.stop(begin, 10s);
  leaving.link_closed(begin + 1s);
  CHECK(signals_in(leaving.advance(begin + 1250ms)) == std::vector{SIGKILL});
  CHECK_FALSE(leaving.ignored_stop(signalled(SIGKILL)));

  termination at_once({}, begin);
  at_once.stop(begin, 0s);
  CHECK(signals_in(at_once.advance(begin)) == std::vector{SIGKILL});
  CHECK_FALSE(at_once.ignored_stop(signalled(SIGKILL)));
  termination restarted({}, begin);
  restarted.kill(begin);
  CHECK(signals_in(restarted.advance(begin)) == std::vector{SIGKILL});
  CHECK_FALSE(restarted.ignored_stop(signalled(SIGKILL)));
}

TEST_CASE("time without polls does not count, whether the session was stopped or the machine slept") {
  steady_time now = begin;
  termination t({}, now);
  t.stop(now, 4s);
  CHECK(signals_until(t, now, begin + 1s).empty());
  now += 33s;
  CHECK(signals_in(t.advance(now)).empty());
  CHECK(signals_until(t, now, begin + 36s + 999ms).empty());
  CHECK(signals_until(t, now, begin + 37s) == std::vector{SIGKILL});
  now += 1h;  // the child's exit has not been read yet
  CHECK(t.advance(now).empty());
  CHECK_FALSE(t.written_off());
}

TEST_CASE("an order that comes after a long time without polls is not delayed") {
  termination t({}, begin);
  t.stop(begin + 1h, 0s);
  CHECK(signals_in(t.advance(begin + 1h)) == std::vector{SIGKILL});
}

TEST_CASE("the first fault stays the reason, even if later events cause an earlier end") {
  termination t({}, begin);
  t.hang(begin, death_cause::hang, "it has been loading 'x' for 30 s");
  CHECK(signals_in(t.advance(begin)) == std::vector{SIGABRT, SIGCONT});
  t.violate(begin, "garbage");
  t.kill(begin);
  CHECK(signals_in(t.advance(begin)) == std::vector{SIGKILL});
  CHECK(t.cause_of(signalled(SIGKILL)) == death_cause::hang);
  CHECK(t.cause_text(signalled(SIGABRT)) == "hang");
}

TEST_CASE("a worker that hangs while it finishes its work before a stop died of the hang") {
  termination t({}, begin);
  t.retire(death_cause::memory);
  CHECK(t.cause() == death_cause::memory);
  CHECK_FALSE(t.under_way());
  t.hang(begin, death_cause::hang, "it has been loading 'x' for 30 s");
  CHECK(t.cause() == death_cause::hang);
}

TEST_CASE("the reason for the end of a worker that used too much memory is kept until it exits") {
  termination t({}, begin);
  t.retire(death_cause::memory, "it used 70.0 MiB");
  t.stop(begin, 10s);
  CHECK(t.fault(exited(0)) == "it used 70.0 MiB");
}

TEST_CASE("a SIGKILL that we did not send counts as a kill from outside") {
  termination t({}, begin);
  CHECK(t.killed_from_outside(signalled(SIGKILL)));
  CHECK_FALSE(t.killed_from_outside(signalled(SIGSEGV)));
  t.kill(begin);
  static_cast<void>(t.advance(begin));
  CHECK_FALSE(t.killed_from_outside(signalled(SIGKILL)));
}

// ---- any order of events ----------------------------------------------------------------------------------

namespace {

enum class act : std::uint8_t { look, sleep, retire, stop, hang, violate, kill, close_link, count };
constexpr const char* act_names[] = {"look", "sleep",   "retire", "stop",
                                     "hang", "violate", "kill",   "close_link"};
using script = testing::script_of<act>;

struct world_settings {
  bool forgets_kills = false;  // an injected bug in the record
};

/// Invariants of any sequence of events, checked against an independent record.
std::size_t live(const world_settings& settings, const script& steps) {
  steady_time now = begin;
  termination t({}, now);
  std::optional<steady_time> due;      // the earliest promised time of the kill
  std::optional<steady_time> aborted;  // when SIGABRT was sent
  std::optional<steady_time> killed;
  bool written_off = false;
  bool wanted = false;
  steady_time looked = now;
  const auto promise = [&](steady_time when) {
    if (!killed) due = due ? std::min(*due, when) : when;
  };
  const auto catch_up = [&] {
    const nanoseconds gap = now - looked;
    looked = now;
    if (gap <= nanoseconds(1s)) return;
    if (due) *due += gap;
    if (killed) *killed += gap;
  };
  for (const auto& s : steps) {
    switch (s.what) {
      case act::look: now += 10ms * (s.pick % 60); break;
      case act::sleep: now += 1s * (2 + s.pick % 100); break;
      default: break;
    }
    catch_up();
    switch (s.what) {
      case act::retire: t.retire(s.pick % 2 == 0 ? death_cause::stopped : death_cause::memory); break;
      case act::stop:
        t.stop(now, 1ms * (s.pick % 12'000));
        promise(now + 1ms * (s.pick % 12'000));
        wanted = true;
        break;
      case act::hang:
        if (!due && !killed) promise(now + 2s), wanted = true;
        t.hang(now, death_cause::hang, "a hang");
        break;
      case act::violate:
        if (!t.fenced()) promise(now);
        t.violate(now, "a breach");
        wanted = true;
        break;
      case act::kill:
        t.kill(now);
        promise(now);
        wanted = true;
        break;
      case act::close_link:
        t.link_closed(now);
        wanted = true;
        break;
      default: break;
    }
    for (const auto& c : t.advance(now)) {
      if (const auto* signal = std::get_if<send_signal>(&c)) {
        if (killed) throw testing::violation{"a signal after SIGKILL"};
        if (!wanted) throw testing::violation{"a signal that was not requested"};
        if (signal->number == SIGABRT && std::exchange(aborted, now))
          throw testing::violation{"SIGABRT twice"};
        if (signal->number == SIGKILL) {
          if (aborted == now && due && *due > now)
            throw testing::violation{"SIGKILL before the stack was written"};
          killed = now;
        }
      }
      if (std::holds_alternative<survives_kill>(c)) {
        if (!killed || std::exchange(written_off, true))
          throw testing::violation{"written off twice, or before SIGKILL"};
        if (now < *killed + 5s) throw testing::violation{"written off after less than 5 s of polling"};
      }
    }
    if (settings.forgets_kills && s.what == act::stop) killed.reset();
    if (due && *due <= now && !killed) throw testing::violation{"its time was over but it was not killed"};
    if (!written_off && now - killed.value_or(now) >= 5s)
      throw testing::violation{"it was not written off in time"};
    if (killed && !t.cause()) throw testing::violation{"killed without a reason"};
  }
  // Every requested termination completes if it is polled.
  for (int i = 0; i < 2000 && wanted && !t.written_off(); ++i) {
    now += 100ms;
    static_cast<void>(t.advance(now));
  }
  if (wanted && !t.written_off()) throw testing::violation{"it never ended"};
  return steps.size();
}

script random_script(testing::random_choice& choose) {
  script steps(1 + choose.below(60));
  for (auto& s : steps) {
    const std::uint32_t dice = choose.below(12);
    s.what = dice < 5 ? act::look : static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    s.pick = choose.below(1U << 20U);
  }
  return steps;
}

const testing::model<act, world_settings> model{
    .name = "termination model", .act_names = act_names, .random_script = random_script, .run = live};

}  // namespace

TEST_CASE("no order of events lets a child outlive its time, signals it twice or writes it off too early") {
  testing::explore(model);
}

TEST_CASE("the model test of terminations finds an injected bug") {
  CHECK(testing::finds_a_mistake(model, {.forgets_kills = true}));
}

TEST_CASE("the report of a death by a signal says who sent it, unless a fault of its own code may have raised it") {
  const termination t({}, begin);
  const auto why = [&t](int signal, const signal_evidence& known = {}) { return t.why_signalled(signalled(signal), known); };
  CHECK(why(SIGKILL, {false, 0, true}) == "sent by another process or by its own code, not by the session; no OOM kill was counted");
  CHECK(why(SIGKILL).ends_with("; OOM kills are not counted here"));
  for (const int sent : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
    CHECK(why(sent) == "sent by another process or by its own code, not by the session");
  for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPIPE, SIGXCPU}) CHECK(why(raised).empty());
  CHECK(why(SIGSEGV, {false, 4711, false}) == "sent by process 4711");  // the dying process named the sender
  CHECK(why(SIGSEGV, {true, 4711, false}) == text_of_injected_signal);
  CHECK(t.why_signalled(exited(3), {}).empty());
}

TEST_CASE("a signal of the session has no other sender") {
  termination t({}, begin);
  t.hang(begin, death_cause::hang, "sample 7 for 30 s");
  CHECK(t.why_signalled(signalled(SIGABRT), {false, 4711, false}).empty());
  termination killed({}, begin);
  killed.kill(begin);
  static_cast<void>(killed.advance(begin));
  CHECK(killed.why_signalled(signalled(SIGKILL), {}).empty());
}
