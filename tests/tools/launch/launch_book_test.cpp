#include "tools/penstock/launch/launch_book.hpp"

#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <random>
#include <tuple>

using namespace penstock;
using namespace penstock::cli;
using namespace std::chrono_literals;

namespace {

process::exit_report exit_code(int code) {
  return {-1, process::exit_report::how::exited, code};
}
process::exit_report by_signal(int signal) {
  return {-1, process::exit_report::how::signalled, signal};
}

template <class T>
std::vector<T> only(const std::vector<launch_command>& commands) {
  std::vector<T> found;
  for (const launch_command& c : commands) {
    if (const auto* hit = std::get_if<T>(&c)) found.push_back(*hit);
  }
  return found;
}

struct group {
  explicit group(const launch_rules& rules) : book(rules), ranks(rules.ranks) {}

  std::vector<launch_command> go() { return book.advance(now); }
  /// Starts all ranks; their pids are 100, 101, ...
  void begin() {
    (void)go();
    for (std::uint32_t r = 0; r < ranks; ++r) book.started(r, static_cast<pid_t>(100 + r));
  }
  void exit(std::uint32_t rank, const process::exit_report& how) { book.exited(rank, how, now); }
  /// The first signal to each rank.
  std::vector<int> signals() {
    std::vector<int> sent(ranks, 0);
    for (const signal_rank& s : only<signal_rank>(go()))
      sent[s.rank] = sent[s.rank] == 0 ? s.signal : sent[s.rank];
    return sent;
  }
  /// The first signal to each rank within this time, during which the launcher polls.
  std::vector<int> signals_after(nanoseconds time) {
    std::vector<int> sent(ranks, 0);
    for (const steady_time until = now + time; now < until;) {
      now += 250ms;
      look();
      const std::vector<int> more = signals();
      for (std::uint32_t r = 0; r < ranks; ++r) sent[r] = sent[r] == 0 ? more[r] : sent[r];
    }
    return sent;
  }
  void look() {
    std::vector<rank_sign> signs;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (book.ranks()[r].now == rank_facts::state::running) signs.push_back({r, traced == r, ""});
    }
    book.look(now, signs, "executing '/mnt/penstock'");
  }
  /// A line of a rank whose session works.
  void hear(std::uint32_t rank, std::uint64_t batches = 0) { book.heard(rank, batches, ++beats, now); }

  launch_book book;
  std::uint32_t ranks;
  steady_time now{100s};
  std::uint64_t beats = 0;
  std::optional<std::uint32_t> traced;
};

}  // namespace

TEST_CASE("when all ranks have exited with 0 the group has finished") {
  group g({.ranks = 3});
  CHECK(only<start_rank>(g.go()).size() == 3);
  for (std::uint32_t r = 0; r < 3; ++r) g.book.started(r, static_cast<pid_t>(100 + r));
  g.exit(1, exit_code(0));
  CHECK(g.signals() == std::vector<int>{0, 0, 0});  // the others continue
  g.exit(0, exit_code(0));
  g.exit(2, exit_code(0));
  CHECK(only<clear_round>(g.go()).size() == 1);
  CHECK(g.book.over());
  CHECK(g.book.outcome() == launch_outcome::finished);
  CHECK_FALSE(g.book.first_cause());
}

TEST_CASE("a rank that fails ends the others: SIGTERM, and SIGKILL four seconds later") {
  group g({.ranks = 3});
  g.begin();
  g.exit(2, by_signal(SIGSEGV));
  CHECK(g.signals() == std::vector<int>{SIGTERM, SIGTERM, 0});
  CHECK(g.book.next_deadline() == g.now + 4s);
  g.exit(0, by_signal(SIGTERM));
  CHECK(g.signals() == std::vector<int>{0, 0, 0});
  CHECK(g.signals_after(4s) == std::vector<int>{0, SIGKILL, 0});
  g.exit(1, by_signal(SIGKILL));
  (void)g.go();
  REQUIRE(g.book.over());
  CHECK(g.book.outcome() == launch_outcome::failed);
  REQUIRE(g.book.first_cause());
  CHECK(g.book.first_cause()->rank == 2);
  CHECK(g.book.first_cause()->pid == 102);
  CHECK(g.book.first_cause()->text == "SIGSEGV");
}

TEST_CASE("failed ranks restart together, as often as allowed, and the last round's cause is reported") {
  group g({.ranks = 2, .max_restarts = 1});
  g.begin();
  g.exit(0, exit_code(3));
  (void)g.go();
  g.exit(1, by_signal(SIGTERM));
  const auto said = g.go();
  CHECK(only<clear_round>(said).size() == 1);
  CHECK(only<start_rank>(said).size() == 2);
  CHECK(g.book.restarts() == 1);
  g.book.started(0, 200);
  g.book.started(1, 201);
  g.exit(1, exit_code(4));
  (void)g.go();
  g.exit(0, exit_code(0));
  (void)g.go();
  REQUIRE(g.book.over());
  CHECK(g.book.outcome() == launch_outcome::failed);
  CHECK(g.book.first_cause()->text == "exit code 4");
  CHECK(g.book.ranks()[1].starts == 2);
}

TEST_CASE("the user's first signal is passed on, the second one kills, and no rank restarts") {
  group g({.ranks = 2, .max_restarts = 5});
  g.begin();
  g.book.stop(SIGINT, false, g.now);
  CHECK(g.signals() == std::vector<int>{SIGINT, SIGINT});
  CHECK(g.book.next_deadline() == g.now + 25s);
  g.exit(0, exit_code(130));
  CHECK(g.signals() == std::vector<int>{0, 0});
  g.book.stop(SIGINT, true, g.now);
  CHECK(g.signals() == std::vector<int>{0, SIGKILL});
  g.exit(1, by_signal(SIGKILL));
  (void)g.go();
  REQUIRE(g.book.over());
  CHECK(g.book.outcome() == launch_outcome::stopped);
  CHECK_FALSE(g.book.first_cause());
}

TEST_CASE("a rank that cannot be started ends the others, including those whose start is in progress") {
  group g({.ranks = 3});
  (void)g.go();
  g.book.started(0, 100);
  g.book.start_failed(1, "no such file", g.now);
  CHECK(g.signals() == std::vector<int>{SIGTERM, 0, 0});
  g.book.started(2, 102);
  CHECK(g.signals() == std::vector<int>{0, 0, SIGTERM});
  g.exit(0, by_signal(SIGTERM));
  g.exit(2, by_signal(SIGTERM));
  (void)g.go();
  REQUIRE(g.book.over());
  CHECK(g.book.first_cause()->pid == -1);
  CHECK(g.book.first_cause()->text == "no such file");
}

TEST_CASE("a rank whose start is reported only after the user's signal gets that signal") {
  group g({.ranks = 2});
  (void)g.go();
  g.book.started(0, 100);
  g.book.stop(SIGINT, false, g.now);
  CHECK(g.signals() == std::vector<int>{SIGINT, 0});
  g.book.started(1, 101);
  CHECK(g.signals() == std::vector<int>{0, SIGINT});
}

TEST_CASE("a process that survives SIGKILL is left behind, and no further round starts") {
  group g({.ranks = 2, .max_restarts = 3});
  g.begin();
  g.exit(0, exit_code(1));
  (void)g.go();
  CHECK(g.signals_after(4s) == std::vector<int>{0, SIGKILL});
  CHECK(g.signals_after(5s) == std::vector<int>{0, 0});
  REQUIRE(g.book.over());
  CHECK(g.book.ranks()[1].left_behind);
  CHECK(g.book.restarts() == 0);
  g.exit(1, by_signal(SIGKILL));  // hours later
  CHECK(g.go().empty());
}

// ---- ranks that are started again one by one ---------------------------------------------------------------

namespace {

launch_rules one_by_one(std::uint32_t ranks) {
  return {.ranks = ranks,
          .restart_one = supervision::restart_settings{.intensity_max = 2, .intensity_within = 60s}};
}

}  // namespace

TEST_CASE("a killed session restarts alone, and at once if it had delivered batches") {
  group g(one_by_one(3));
  g.begin();
  g.hear(1, 5);
  g.exit(1, by_signal(SIGKILL));
  const auto said = g.go();
  CHECK(only<signal_rank>(said).empty());
  CHECK(only<clear_round>(said).empty());
  REQUIRE(only<start_rank>(said).size() == 1);
  CHECK(only<start_rank>(said)[0].rank == 1);
  g.book.started(1, 201);
  CHECK(g.book.restarts() == 1);
  CHECK(g.book.rounds_restarted() == 0);
  for (std::uint32_t r = 0; r < 3; ++r) g.exit(r, exit_code(0));
  (void)g.go();
  REQUIRE(g.book.over());
  CHECK(g.book.outcome() == launch_outcome::finished);
  CHECK_FALSE(g.book.first_cause());
}

TEST_CASE("how each earlier process of a rank ended stays known after its restarts") {
  group g(one_by_one(2));
  g.begin();
  pid_t pid = 201;
  for (const int signal : {SIGSEGV, SIGKILL}) {
    g.hear(1, 5);
    g.now += 3s;
    g.exit(1, by_signal(signal));
    (void)g.go();
    g.book.started(1, pid++);
  }
  CHECK(g.book.ranks()[0].earlier.empty());
  const auto& earlier = g.book.ranks()[1].earlier;
  REQUIRE(earlier.size() == 2);
  CHECK(std::tuple(earlier[0].pid, earlier[0].end, earlier[0].signal) == std::tuple(101, "SIGSEGV", SIGSEGV));
  CHECK(std::tuple(earlier[1].pid, earlier[1].end, earlier[1].signal) == std::tuple(201, "SIGKILL", SIGKILL));
  CHECK(earlier[1].lived == 3s);
  CHECK_FALSE(earlier[0].code);
}

TEST_CASE("the group continues while its only remaining rank waits for a restart") {
  group g(one_by_one(2));
  g.begin();
  g.exit(0, exit_code(0));
  g.exit(1, by_signal(SIGSEGV));
  CHECK(only<start_rank>(g.go()).size() == 1);  // the first restart does not wait
  g.book.started(1, 201);
  g.exit(1, by_signal(SIGSEGV));
  CHECK(g.go().empty());
  CHECK_FALSE(g.book.over());
  CHECK(g.book.next_deadline() > g.now);
  CHECK(g.book.next_deadline() <= g.now + 200ms);
  g.now = g.book.next_deadline();
  CHECK(only<start_rank>(g.go()).size() == 1);
}

TEST_CASE("a rank that keeps dying without a batch is given up, and the group fails with it") {
  group g(one_by_one(2));
  g.begin();
  for (int i = 0; i < 2; ++i) {
    g.exit(1, by_signal(SIGABRT));
    g.now += 1s;
    REQUIRE(only<start_rank>(g.go()).size() == 1);
    g.book.started(1, 201);
  }
  g.exit(1, by_signal(SIGABRT));
  CHECK(g.signals() == std::vector<int>{SIGTERM, 0});
  g.exit(0, exit_code(143));
  (void)g.go();
  REQUIRE(g.book.over());
  CHECK(g.book.outcome() == launch_outcome::failed);
  CHECK(g.book.first_cause()->text.starts_with("SIGABRT; giving up: it ended 3 times within"));
}

TEST_CASE("a SIGKILL from outside does not count towards giving up, and the OOM killer's does") {
  group g(one_by_one(1));
  g.begin();
  const auto die = [&](oom_killer oom) {
    g.book.exited(0, by_signal(SIGKILL), g.now, oom);
    g.now += 30s;
    const bool started = only<start_rank>(g.go()).size() == 1;
    if (started) g.book.started(0, 200);
    return started;
  };
  for (int i = 0; i < 20; ++i) CHECK(die(oom_killer::did_not));
  g.now += 60s;
  CHECK(die(oom_killer::did_it));
  CHECK(g.book.ranks()[0].starts == 22);
  g.now -= 29s;
  CHECK(die(oom_killer::did_it));
  g.now -= 29s;
  CHECK_FALSE(die(oom_killer::did_it));
}

TEST_CASE(
    "a session that fails with its own error ends the group, and one that is stopped alone stops the group") {
  group failing(one_by_one(2));
  failing.begin();
  failing.exit(0, exit_code(1));
  CHECK(failing.signals() == std::vector<int>{0, SIGTERM});
  group stopping(one_by_one(2));
  stopping.begin();
  stopping.exit(0, exit_code(143));
  CHECK(stopping.signals() == std::vector<int>{0, SIGTERM});
  stopping.exit(1, exit_code(143));
  (void)stopping.go();
  REQUIRE(stopping.book.over());
  CHECK(stopping.book.outcome() == launch_outcome::stopped);
}

TEST_CASE("a silent session gets SIGABRT like every child, and restarts") {
  group g(one_by_one(2));
  g.begin();
  g.look();
  for (std::uint32_t r = 0; r < 2; ++r) g.hear(r, 1);
  for (int i = 0; i < 39; ++i) {
    CHECK(g.signals_after(250ms) == std::vector<int>{0, 0});
    g.hear(1);
  }
  CHECK(g.signals_after(500ms) == std::vector<int>{SIGABRT, 0});
  g.hear(1);
  CHECK(g.signals_after(2s) == std::vector<int>{SIGKILL, 0});
  g.exit(0, by_signal(SIGKILL));
  CHECK(g.book.ranks()[0].end == "silent for 10 s");
  CHECK(only<start_rank>(g.go()).size() == 1);
}

TEST_CASE("a line without a new beat is not a sign of life") {
  group g(one_by_one(1));
  g.begin();
  g.hear(0, 1);
  std::vector<int> sent{0};
  for (int i = 0; i < 44 && sent[0] == 0; ++i) {
    sent = g.signals_after(250ms);
    g.book.heard(0, 1, g.beats, g.now);
  }
  CHECK(sent[0] == SIGABRT);
}

TEST_CASE("a session that hangs before its first line is replaced at the start deadline") {
  group g(one_by_one(2));
  g.begin();
  for (int i = 0; i < 119; ++i) {
    g.hear(0);
    CHECK(g.signals_after(250ms) == std::vector<int>{0, 0});
  }
  g.hear(0);
  CHECK(g.signals_after(500ms) == std::vector<int>{0, SIGABRT});
  g.exit(1, by_signal(SIGABRT));
  CHECK(g.book.ranks()[1].end == "sent nothing for 30 s after its start");
  const auto again = only<start_rank>(g.go());
  REQUIRE(again.size() == 1);
  CHECK(again[0].rank == 1);
}

TEST_CASE("a start that does not return is given up at the start deadline, even for a rank of a program") {
  for (const launch_rules& rules : {launch_rules{.ranks = 1}, one_by_one(1)}) {
    group g(rules);
    (void)g.go();
    CHECK(g.signals_after(29s) == std::vector<int>{0});
    CHECK(g.signals_after(1s) == std::vector<int>{SIGKILL});
    g.book.start_failed(0, "it was given up", g.now);
    CHECK(g.book.ranks()[0].end ==
          "executing '/mnt/penstock' has not returned for 30 s: its file system is not responding");
    CHECK(only<start_rank>(g.go()).size() == (rules.restart_one ? 1 : 0));
  }
}

TEST_CASE("while the launcher or the whole job is suspended no rank counts as silent") {
  for (const nanoseconds pause : std::vector<nanoseconds>{4s, 5s, 9s, 11s, 60s, 1h}) {
    group g(one_by_one(4));
    g.begin();
    for (std::uint32_t r = 0; r < 3; ++r) g.hear(r);  // rank 3 has not sent its first line
    CHECK(g.signals_after(500ms) == std::vector<int>(4, 0));
    g.now += pause;  // the timer fires before the ranks' messages are read
    CHECK(g.signals_after(250ms) == std::vector<int>(4, 0));
    CHECK(g.signals_after(3s) == std::vector<int>(4, 0));
    for (std::uint32_t r = 0; r < 4; ++r) g.hear(r);
    CHECK(g.signals_after(9s) == std::vector<int>(4, 0));
  }
}

TEST_CASE("a rank held by a debugger is not silent, and has its full time again afterwards") {
  group g(one_by_one(2));
  g.begin();
  g.hear(0);
  g.traced = 0;
  for (int i = 0; i < 400; ++i) {
    g.hear(1);
    REQUIRE(g.signals_after(250ms) == std::vector<int>{0, 0});
  }
  g.traced.reset();
  for (int i = 0; i < 39; ++i) {
    g.hear(1);
    REQUIRE(g.signals_after(250ms) == std::vector<int>{0, 0});
  }
  g.hear(1);
  CHECK(g.signals_after(500ms) == std::vector<int>{SIGABRT, 0});
}

TEST_CASE(
    "a rank that had no time to learn that its group has ended is not killed for that, nor is one held by a debugger") {
  group g(one_by_one(3));
  g.begin();
  g.traced = 2;
  for (std::uint32_t r = 0; r < 3; ++r) g.hear(r);
  CHECK(g.signals_after(250ms) == std::vector<int>{0, 0, 0});
  g.book.group_over(0, launch_outcome::finished, g.now);
  g.now += 30s;
  CHECK(g.signals_after(250ms) == std::vector<int>{0, 0, 0});
  CHECK(g.signals_after(2s) == std::vector<int>{0, SIGKILL, 0});
}

TEST_CASE("a rank that hangs and survives SIGKILL ends the group, because its successor would need its GPU") {
  group g(one_by_one(2));
  g.begin();
  for (std::uint32_t r = 0; r < 2; ++r) g.hear(r, 1);
  for (int i = 0; i < 72; ++i) {
    g.hear(1);
    g.now += 250ms;
    g.look();
    const auto said = g.go();
    if (const auto lost = only<leave_behind>(said); !lost.empty()) {
      CHECK(lost[0].rank == 0);
      CHECK(only<signal_rank>(said).at(0).rank == 1);
      CHECK(only<signal_rank>(said).at(0).signal == SIGTERM);
      break;
    }
  }
  REQUIRE(g.book.first_cause());
  CHECK(g.book.first_cause()->text == "silent for 10 s; it survived SIGKILL");
  g.exit(1, exit_code(143));
  CHECK(only<start_rank>(g.go()).empty());
  CHECK(g.book.over());
}

TEST_CASE("time during which the launcher was suspended does not shorten the ranks' time to end") {
  group g({.ranks = 1});
  g.begin();
  g.book.stop(SIGINT, false, g.now);
  CHECK(g.signals() == std::vector<int>{SIGINT});
  g.now += 60s;
  CHECK(g.signals_after(24s) == std::vector<int>{0});
  CHECK(g.signals_after(2s) == std::vector<int>{SIGKILL});
}

TEST_CASE("a rank lost when its group has finished is started to deliver its remaining batches alone") {
  group g(one_by_one(3));
  g.begin();
  for (std::uint32_t r = 0; r < 3; ++r) g.hear(r, 5);
  g.exit(1, by_signal(SIGKILL));
  CHECK_FALSE(only<start_rank>(g.go())[0].alone);
  g.book.started(1, 201);
  g.book.group_over(0, launch_outcome::finished, g.now);
  g.exit(2, by_signal(SIGKILL));
  auto said = only<start_rank>(g.go());
  REQUIRE(said.size() == 1);
  CHECK(said[0].rank == 2);
  CHECK(said[0].alone);
  g.book.started(2, 202);
  g.exit(0, exit_code(0));
  // Rank 1 may have started too late to learn that the group has ended: it would then look for the group for
  // minutes.
  g.now += 1s;
  CHECK(g.signals() == std::vector<int>{0, 0, 0});
  CHECK(g.book.next_deadline() == g.now + 1s);
  g.now += 1s;
  CHECK(g.signals() == std::vector<int>{0, SIGKILL, 0});
  CHECK(g.signals() == std::vector<int>{0, 0, 0});
  g.exit(1, by_signal(SIGKILL));
  said = only<start_rank>(g.go());
  REQUIRE(said.size() == 1);
  CHECK(said[0].alone);
  g.book.started(1, 203);
  CHECK(g.book.restarts() == 2);  // the two lost ranks
  g.now += 60s;
  CHECK(g.signals() == std::vector<int>{0, 0, 0});
  g.exit(1, exit_code(0));
  g.exit(2, exit_code(0));
  (void)g.go();
  CHECK(g.book.outcome() == launch_outcome::finished);
}

TEST_CASE("a rank that knows how its group ended may take any time to exit") {
  group g(one_by_one(2));
  g.begin();
  g.book.group_over(0, launch_outcome::finished, g.now);
  g.now += 1s;
  g.book.group_over(1, launch_outcome::finished, g.now);
  g.now += 60s;
  CHECK(g.signals() == std::vector<int>{0, 0});
}

TEST_CASE("once the group was stopped, no lost rank restarts, not even one that waits for its restart") {
  group g(one_by_one(4));
  g.begin();
  for (int i = 0; i < 2; ++i) {  // the second start has to wait
    g.exit(1, by_signal(SIGSEGV));
    if (i == 0) (void)g.go();
    if (i == 0) g.book.started(1, 201);
  }
  g.book.group_over(0, launch_outcome::stopped, g.now);
  g.exit(2, by_signal(SIGKILL));
  std::vector<signal_rank> sent;
  for (int i = 0; i < 20; ++i) {
    g.now += 250ms;
    const auto said = g.go();
    CHECK(only<start_rank>(said).empty());
    for (const signal_rank& one : only<signal_rank>(said)) sent.push_back(one);
  }
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].rank == 3);  // rank 3 does not know how the group ended
  g.exit(3, by_signal(SIGKILL));
  g.exit(0, exit_code(0));
  (void)g.go();
  REQUIRE(g.book.over());
  CHECK_FALSE(g.book.first_cause());
}

TEST_CASE("a rank that waits for its restart is not started after the user's signal") {
  group g(one_by_one(2));
  g.begin();
  g.exit(1, by_signal(SIGKILL));
  g.book.stop(SIGINT, false, g.now);
  const auto said = g.go();
  CHECK(only<start_rank>(said).empty());
  CHECK(only<signal_rank>(said).size() == 1);
  g.exit(0, exit_code(130));
  (void)g.go();
  CHECK(g.book.over());
}

TEST_CASE(
    "whatever happens, a group ends, only running ranks get signals, and no rank restarts too often") {
  const std::uint64_t seed = testing::seed_of_this_run("launch book");
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  for (int script = 0; script < 20'000; ++script) {
    const launch_rules rules{.ranks = 1 + static_cast<std::uint32_t>(below(5)),
                             .max_restarts = static_cast<std::uint32_t>(below(3))};
    group g(rules);
    enum class process_state { none, starting, running };
    std::vector<process_state> world(rules.ranks, process_state::none);
    std::uint32_t rounds = 0;
    int stops = 0;
    bool failed = false;  // a rank of this round failed before the group was stopped
    for (int step = 0; !g.book.over(); ++step) {
      INFO("seed " << seed << ", script " << script << ", step " << step);
      REQUIRE(step < 2000);
      std::vector<bool> just_ended(rules.ranks);  // a second signal at the same time has no effect
      for (const launch_command& c : g.go()) {
        if (const auto* start = std::get_if<start_rank>(&c)) {
          REQUIRE(world[start->rank] == process_state::none);
          world[start->rank] = process_state::starting;
          rounds += start->rank == 0 ? 1 : 0;
          failed = failed && start->rank != 0;
        } else if (const auto* sent = std::get_if<signal_rank>(&c)) {
          if (just_ended[sent->rank]) continue;
          if (world[sent->rank] == process_state::starting && sent->signal == SIGKILL) {  // SIGKILL cancels the start
            g.book.start_failed(sent->rank, "given up", g.now);
            world[sent->rank] = process_state::none;
            continue;
          }
          REQUIRE(world[sent->rank] == process_state::running);
          const bool heeds = sent->signal == SIGKILL || below(2) == 0;
          if (!heeds) continue;
          g.exit(sent->rank, by_signal(sent->signal));
          world[sent->rank] = process_state::none;
          just_ended[sent->rank] = true;
        } else {
          for (const process_state p : world) REQUIRE(p == process_state::none);
        }
      }
      REQUIRE(rounds <= rules.max_restarts + 1);
      if (g.book.over()) break;
      const auto rank = static_cast<std::uint32_t>(below(rules.ranks));
      if (world[rank] == process_state::starting) {
        const bool works = below(8) > 0;
        failed = failed || (!works && stops == 0);
        works ? g.book.started(rank, 7) : g.book.start_failed(rank, "EAGAIN", g.now);
        world[rank] = works ? process_state::running : process_state::none;
      } else if (world[rank] == process_state::running && below(4) == 0) {
        const bool well = below(3) > 0;
        failed = failed || (!well && stops == 0);
        g.exit(rank, well ? exit_code(0) : by_signal(SIGABRT));
        world[rank] = process_state::none;
      } else if (below(200) == 0) {
        g.book.stop(SIGTERM, stops++ > 0, g.now);
      }
      g.now += 100ms;
    }
    const auto expected = failed      ? launch_outcome::failed
                          : stops > 0 ? launch_outcome::stopped
                                      : launch_outcome::finished;
    CHECK(g.book.outcome() == expected);
    CHECK(g.book.first_cause().has_value() == failed);
  }
}
