// The launcher's decisions under random orders of events; launch_book_test.cpp has single events. The ranks of this world work, hang in
// every way, are suspended, and are held in a debugger. The launcher is suspended alone, or with the whole job.
#include "tests/runtime/schedule/random_scripts.hpp"
#include "tools/penstock/launch/launch_book.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <map>

using namespace penstock;
using namespace penstock::cli;
using namespace std::chrono_literals;
using process::exit_report;

namespace {

exit_report exit_code(int code) {
  return {7, exit_report::how::exited, code, {}};
}
exit_report by_signal(int signal) {
  return {7, exit_report::how::signalled, signal, {}};
}

// clang-format off
enum class act : std::uint8_t { pass, pause_launcher, pause_all, hang, freeze, mute, trace, untrace, stall_start, fail_start,
                                harden, die, finish_rank, fail, group_over, stop, kill, count };
constexpr const char* act_names[] = {"pass", "pause_launcher", "pause_all", "hang", "freeze", "mute", "trace", "untrace",
                                     "stall_start", "fail_start", "harden", "die", "finish_rank", "fail", "group_over",
                                     "stop", "kill"};
// clang-format on
using script = testing::script_of<act>;

struct world_settings {
  std::uint32_t ranks = 4;
  bool keeps_lines_back = false;  // an injected bug: lines of working ranks do not arrive
  bool forgets_ends = false;      // an injected bug: every third end is not reported
};

constexpr nanoseconds lost_after = 2s;
constexpr nanoseconds start_deadline = 5s;
constexpr nanoseconds left_behind_after = 2s;
constexpr nanoseconds killing = 5s;
// A longer pause of the launcher is recognised as a pause.
constexpr nanoseconds late_look = 1s;
// If over half of the ranks seem to hang together, the hang detector delays its decision by one more timeout. It then gives half a timeout
// to those that recover later than the others.
constexpr nanoseconds found_within = start_deadline + start_deadline + start_deadline / 2 + 1s;

class world {
 public:
  explicit world(const world_settings& settings) : settings_(settings), book_(rules(settings)) { settle(); }

  void run(const script& steps) {
    for (const auto& s : steps) {
      if (book_.over()) return;
      perform(s);
      settle();
    }
    finish();
  }

 private:
  struct rank_here {
    bool running = false;  // false: the rank's start has not returned
    nanoseconds awake{0};  // how long the process has run
    nanoseconds speaks_after{0};
    std::uint64_t beats = 0;
    bool stalled = false;  // the rank's start returns only when it is killed
    bool mute = false;     // the rank hangs before its first line
    bool hung = false;     // the rank's lines arrive, but its session does not answer
    bool frozen = false;   // SIGSTOP
    bool traced = false;
    bool hard = false;  // survives SIGKILL
    bool lame = false;  // the rank does not know that the group has ended
    bool aborted = false;
    bool killed = false;
    bool asked = false;      // the rank was asked to end, with the round
    nanoseconds sick{0};     // how long the launcher could have seen the hang
    nanoseconds dying{0};    // how long the launcher could have seen that it survives SIGKILL
    nanoseconds outside{0};  // how long the rank could have learned that the group has ended
    [[nodiscard]] bool is_sick() const { return stalled || mute || hung || frozen; }
    [[nodiscard]] bool speaks() const { return running && !mute && !frozen && awake >= speaks_after; }
  };

  static launch_rules rules(const world_settings& settings) {
    return {.ranks = settings.ranks,
            .restart_one = supervision::restart_settings{.intensity_max = 1'000'000, .backoff_max = 1s},
            .start_deadline = start_deadline,
            .lost_after = lost_after,
            .ending = {.after_kill = killing}};
  }
  static void require(bool holds, const char* what) {
    if (!holds) throw testing::violation{what};
  }
  [[nodiscard]] bool ending() const { return stopped_ || failed_; }

  rank_here* pick(std::uint32_t n) {
    if (here_.empty()) return nullptr;
    return &std::next(here_.begin(), static_cast<std::ptrdiff_t>(n % here_.size()))->second;
  }

  // ---- time -----------------------------------------------------------------------------------------------

  /// Lets the ranks run for this long.
  void live(nanoseconds time) {
    for (auto& [rank, r] : here_) {
      if (!r.running || r.frozen) continue;
      r.awake += time;
      if (r.speaks() && !r.hung) ++r.beats;
    }
  }
  void read_sockets() {
    notice_ends();
    if (settings_.keeps_lines_back) return;
    for (const auto& [rank, r] : here_) {
      if (r.speaks()) book_.heard(rank, 1, r.beats, now_);
    }
  }
  void look() {
    std::vector<rank_sign> signs;
    for (const auto& [rank, r] : here_) {
      if (r.running) signs.push_back({rank, r.traced, "futex_wait"});
    }
    book_.look(now_, signs, "executing '/mnt/penstock'");
  }
  /// Sockets and timers arrive in any order.
  void poll(bool lines_first) {
    if (lines_first) read_sockets();
    look();
    settle();
    if (!lines_first) read_sockets();
    settle();
  }
  void pass(nanoseconds time, bool lines_first) {
    now_ += time;
    live(time);
    for (auto& [rank, r] : here_) r.outside += r.lame ? time : 0s;
    start_those_that_can();
    poll(lines_first);
    count_sickness(time);
    end_those_asked();
  }
  void count_sickness(nanoseconds time) {
    for (auto& [rank, r] : here_) {
      r.sick = r.is_sick() && !r.traced && !r.aborted && !r.killed && !ending() ? r.sick + time : 0s;
      require(r.sick <= found_within, "a hung rank was not ended by its deadline");
      r.dying = r.killed ? r.dying + time : 0s;
      require(r.dying <= killing + 2s, "a process that survives SIGKILL was not given up");
    }
  }
  void start_those_that_can() {
    for (auto& [rank, r] : here_) {
      if (r.running || r.stalled) continue;
      r.running = true;
      book_.started(rank, 7);
    }
  }
  void end_those_asked() {
    for (auto& [rank, r] : std::map(here_)) {
      if (r.asked && r.running && !r.is_sick() && !r.traced) leave(rank, exit_code(143));
    }
  }

  // ---- events ---------------------------------------------------------------------------------------------

  void leave(std::uint32_t rank, const exit_report& how) {
    here_.erase(rank);
    if (settings_.forgets_ends && ++ends_ % 3 == 0) return;
    book_.exited(rank, how, now_);
  }
  std::uint32_t number_of(const rank_here* r) const {
    return std::ranges::find_if(here_, [r](const auto& one) { return &one.second == r; })->first;
  }

  void perform(const testing::step<act>& s) {
    rank_here* const r = pick(s.pick);
    const bool odd = s.pick % 2 == 1;
    switch (s.what) {
      case act::pass: return pass(10ms * (1 + s.pick % 20), odd);
      case act::pause_launcher: return pause(100ms * (1 + s.pick % 600), true, odd);
      case act::pause_all: return pause(100ms * (1 + s.pick % 600), false, odd);
      case act::hang:
        if (r != nullptr) r->hung = true;
        return;
      case act::freeze:
        if (r != nullptr && r->running) r->frozen = true;
        return;
      case act::mute:
        if (r != nullptr && !r->speaks()) r->mute = true;
        return;
      case act::trace:
        if (r != nullptr && r->running) r->traced = true;
        return;
      case act::untrace:
        if (r != nullptr) r->traced = false;
        return;
      case act::stall_start:
        if (r != nullptr) r->stalled = !r->running;
        return;
      case act::fail_start:
        if (r != nullptr && !r->running) {
          const std::uint32_t rank = number_of(r);
          here_.erase(rank);
          book_.start_failed(rank, "no descriptors", now_);
        }
        return;
      case act::harden:
        if (r != nullptr && !r->aborted && !r->killed) r->hard = s.pick % 16 == 0;
        return;
      case act::die:
        if (r != nullptr && r->running && !r->hard) leave(number_of(r), by_signal(odd ? SIGSEGV : SIGKILL));
        return;
      case act::finish_rank:
        if (r != nullptr && r->running && !r->is_sick()) leave(number_of(r), exit_code(0));
        return;
      case act::fail:
        if (r != nullptr && r->running && !r->is_sick()) {
          failed_ = true;
          leave(number_of(r), exit_code(1));
        }
        return;
      case act::group_over:
        if (r == nullptr || !r->speaks() || r->hung || over_) return;
        over_ = true;
        for (auto& [rank, one] : here_) one.lame = &one != r;
        return book_.group_over(number_of(r), launch_outcome::finished, now_);
      case act::stop: stopped_ = true; return book_.stop(SIGTERM, false, now_);
      case act::kill: stopped_ = true; return book_.stop(SIGTERM, true, now_);
      case act::count: return;
    }
  }
  /// Suspends the launcher, with or without the ranks. Everything runs for a moment before the next pause.
  void pause(nanoseconds time, bool ranks_run, bool lines_first) {
    now_ += time;
    if (ranks_run) live(time);
    for (auto& [rank, r] : here_) r.outside += r.lame && time <= late_look ? time : 0s;
    poll(lines_first);
    for (int i = 0; i < 5; ++i) pass(100ms, i % 2 == 0);
  }

  // ---- commands -------------------------------------------------------------------------------------------

  void settle() {
    for (launch_command& c : book_.advance(now_)) std::visit([this](auto& one) { carry_out(one); }, c);
  }
  void carry_out(start_rank& order) {
    require(!here_.contains(order.rank), "a second process of one rank");
    require(!ending(), "a rank was started after the end");
    require(order.alone == over_, "the order to start a rank is wrong about the end of its group");
    std::erase_if(due_, [&](const auto& old) { return old.first == order.rank; });
    here_[order.rank].speaks_after = 100ms * (++starts_ % 30);
  }
  void carry_out(signal_rank& order) {
    const auto it = here_.find(order.rank);
    require(it != here_.end(), "a signal to a nonexistent rank");
    rank_here& r = it->second;
    require(r.running || order.signal == SIGKILL, "a signal to a rank that is being started");
    const bool fatal = order.signal == SIGKILL || order.signal == SIGABRT;
    if (fatal && !ending() && !r.aborted) {
      require(r.is_sick() || r.outside >= left_behind_after, "a working rank was killed");
      require(!r.traced, "a rank that a debugger holds was killed");
    }
    if (order.signal == SIGCONT) return;
    if (!r.running) return refuse_start(order.rank);
    if (!fatal) {
      r.asked = true;
      return;
    }
    r.aborted = true;
    r.killed = r.killed || order.signal == SIGKILL;
    const bool handles = order.signal == SIGKILL ? !r.hard : !r.hard && ++aborts_ % 2 == 0;
    if (handles) due_.emplace_back(order.rank, order.signal);
  }
  void refuse_start(std::uint32_t rank) {
    rank_here& r = here_.at(rank);
    r.killed = true;
    if (!r.hard) due_.emplace_back(rank, 0);
  }
  void carry_out(leave_behind& lost) {
    const auto it = here_.find(lost.rank);
    require(it != here_.end() && it->second.killed && it->second.hard,
            "given up, but it does not survive SIGKILL");
    here_.erase(it);
    failed_ = true;
  }
  void carry_out(clear_round&) { require(here_.empty(), "the round ended with a process left"); }

  /// The effects of the signals, which are noticed a moment later.
  void notice_ends() {
    for (const auto& [rank, signal] : std::exchange(due_, {})) {
      if (!here_.contains(rank)) continue;
      if (signal != 0) {
        leave(rank, by_signal(signal));
      } else if (!here_.at(rank).running) {
        here_.erase(rank);
        book_.start_failed(rank, "it was given up", now_);
      }
    }
  }

  // ---- the end --------------------------------------------------------------------------------------------

  /// No more faults: all unfinished ranks work again, or the group ends.
  void finish() {
    for (auto& [rank, r] : here_) r.traced = false;
    for (int i = 0; i < 600; ++i) {
      if (book_.over()) return check_outcome();
      pass(100ms, i % 2 == 0);
      if (!ending() && i > 100 && all_work()) return;
    }
    require(!ending(), "the group was asked to end but did not");
    require(false, "a hung rank was not replaced");
  }
  [[nodiscard]] bool all_work() const {
    return due_.empty() &&
           std::ranges::all_of(
               here_, [](const auto& one) { return one.second.speaks() && !one.second.is_sick(); }) &&
           book_.next_deadline() == never;
  }
  void check_outcome() const {
    if (stopped_ && !failed_)
      require(book_.outcome() == launch_outcome::stopped, "the group was stopped but reports another outcome");
    if (!stopped_ && failed_)
      require(book_.outcome() == launch_outcome::failed, "the group failed but reports another outcome");
    if (!stopped_ && !failed_)
      require(book_.outcome() == launch_outcome::finished, "the group finished but reports another outcome");
  }

  const world_settings settings_;
  launch_book book_;
  steady_time now_ = steady_time(1h);
  std::map<std::uint32_t, rank_here> here_;
  std::vector<std::pair<std::uint32_t, int>> due_;
  std::uint32_t starts_ = 0;
  std::uint32_t aborts_ = 0;
  std::uint32_t ends_ = 0;
  bool over_ = false;
  bool stopped_ = false;
  bool failed_ = false;
};

script random_script(testing::random_choice& choose) {
  script steps(1 + choose.below(300));
  for (auto& s : steps) {
    s.what = choose.below(3) != 0 ? act::pass
                                  : static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    const bool final = s.what == act::stop || s.what == act::kill || s.what == act::fail ||
                       s.what == act::finish_rank || s.what == act::group_over;
    if (final && choose.below(8) != 0) s.what = act::pass;
    s.pick = choose.below(1U << 20U);
  }
  return steps;
}

world_settings random_settings(testing::random_choice& choose) {
  return {.ranks = 1 + choose.below(6)};
}

std::size_t run(const world_settings& settings, const script& steps) {
  world(settings).run(steps);
  return steps.size();
}

const testing::model<act, world_settings> model{.name = "launch model",
                                                .act_names = act_names,
                                                .random_script = random_script,
                                                .random_settings = random_settings,
                                                .run = run};

}  // namespace

TEST_CASE(
    "despite suspensions no working rank is killed, hung ranks are replaced in time, and none starts after a stop") {
  testing::explore(model);
}

TEST_CASE("the model test of the launcher finds injected bugs") {
  CHECK(testing::finds_a_mistake(model, {.keeps_lines_back = true}));
  CHECK(testing::finds_a_mistake(model, {.forgets_ends = true}));
}
