// Supervision of loader workers under random orders of events; worker_supervision_test.cpp has single events.
#include "runtime/base/exit_codes.hpp"
#include "runtime/supervision/worker_supervision.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;
using process::exit_report;

namespace {

constexpr std::uint32_t places_max = 8;

exit_report signalled(int number) {
  return {7, exit_report::how::signalled, number, {}};
}
exit_report exited(int code) {
  return {7, exit_report::how::exited, code, {}};
}

// clang-format off
enum class act : std::uint8_t { pass, sleep, advance_one, die, exit, breach, close_link, freeze, fence, measure, scale,
                                restart, drain, sacrificial, hurry, fail_start, stall_start, late_news, close,
                                count };
constexpr const char* act_names[] = {"pass", "sleep", "advance_one", "die", "exit", "breach", "close_link", "freeze",
                                     "fence", "measure", "scale", "restart", "drain", "sacrificial", "hurry",
                                     "fail_start", "stall_start", "late_news", "close"};
// clang-format on
using script = testing::script_of<act>;

struct world_settings {
  bool forgets_deaths = false;  // an injected bug: every fifth death gets no decision
};

class world {
 public:
  explicit world(const world_settings& settings) : settings_(settings), workers_(rules()) {
    workers_.open(now_);
    settle();
  }
  void run(const script& steps) {
    for (const auto& s : steps) {
      perform(s);
      settle();
    }
    finish();
  }

 private:
  struct process_here {
    worker_ref who;
    int step = 0;          // counts the steps of a start: 0 not spawned, then started, greeted, described, prepared, ready
    bool stalled = false;  // the start returns only when the process is killed
    bool frozen = false;
    bool killed = false;
    bool told_to_stop = false;
    bool retired = false;
  };

  static worker_rules rules() {
    worker_rules r;
    r.pool.workers = 3;
    r.pool.sacrificial_place = places_max;
    r.clocks = {20s, 2s, 5s};
    r.memory_max_bytes = 1000;
    r.pool.restart.intensity_max = 1000;
    return r;
  }
  static void require(bool holds, const char* what) {
    if (!holds) throw testing::violation{what};
  }

  process_here* pick(std::uint32_t n) {
    if (here_.empty()) return nullptr;
    return &std::next(here_.begin(), static_cast<std::ptrdiff_t>(n % here_.size()))->second;
  }

  void pass(nanoseconds time) {
    now_ += time;
    ++beats_;
    std::vector<worker_sign> signs;
    for (const auto& [place, p] : here_) {
      if (p.step == 0) continue;
      worker_sign sign;
      sign.worker = place;
      sign.heartbeats = p.frozen ? 1 : beats_;
      signs.push_back(sign);
    }
    workers_.look(now_, signs);
  }

  void advance(process_here& p) {
    if (p.stalled || (p.frozen && p.step > 0)) return;
    switch (p.step) {
      case 0: workers_.started(p.who, 7); break;
      case 1: workers_.greeted(p.who, now_, ""); break;
      case 2: static_cast<void>(workers_.described(p.who, now_)); break;
      case 3: static_cast<void>(workers_.prepared(p.who, now_, true)); break;
      case 4: workers_.ready(p.who, now_); break;
      default: return;
    }
    ++p.step;
  }

  void refuse_start(process_here& p) {
    const worker_ref who = p.who;
    here_.erase(who.worker);
    workers_.start_refused(who, now_, {errc::system, "no descriptors", 24});
  }

  void die(process_here& p, const exit_report& end) {
    if (p.step == 0) return;
    const worker_ref who = p.who;
    here_.erase(who.worker);
    workers_.exited(who, now_, end, false);
  }

  void perform(const testing::step<act>& s) {
    process_here* p = pick(s.pick);
    switch (s.what) {
      case act::pass: return pass(10ms * (s.pick % 50));
      case act::sleep: now_ += 1s * (2 + s.pick % 100); return;
      case act::advance_one:
        if (p != nullptr) advance(*p);
        return;
      case act::die:
        if (p != nullptr) die(*p, signalled(s.pick % 2 == 0 ? SIGSEGV : SIGKILL));
        return;
      case act::exit:
        if (p != nullptr) die(*p, exited(static_cast<int>(s.pick % 3)));
        return;
      case act::breach:
        if (p != nullptr) workers_.out_of_turn(p->who, now_, "batch_loaded");
        return;
      case act::close_link:
        if (p != nullptr && p->step > 0) workers_.link_closed(p->who, now_, s.pick % 2 == 0 ? "" : "garbage");
        return;
      case act::freeze:
        if (p != nullptr) p->frozen = true;
        return;
      case act::fence:
        if (p != nullptr)
          workers_.fence(p->who, now_, "it reported slot 9, which matches none of its leases");
        return;
      case act::measure:
        if (p != nullptr) workers_.measured(p->who, s.pick % 2000, 3);
        return;
      case act::scale: return workers_.scale(1 + s.pick % places_max, now_);
      case act::restart: return workers_.restart(s.pick % 3, now_, s.pick % 2 == 0);
      case act::drain: return workers_.drain(s.pick % 3);
      case act::sacrificial: return workers_.want_sacrificial(s.pick % 2 == 0, now_);
      case act::hurry:
        if (p != nullptr && p->retired) workers_.told_to_stop(p->who, now_), p->told_to_stop = true;
        return;
      case act::fail_start:
        if (p != nullptr && p->step == 0) refuse_start(*p);
        return;
      case act::stall_start:
        if (p != nullptr) p->stalled = p->step == 0;
        return;
      case act::late_news: {
        const worker_ref old{s.pick % 3, 0};
        workers_.ready(old, now_);
        workers_.exited(old, now_, exited(0), false);
        static_cast<void>(workers_.blame_decided(old, now_, false, 0, ""));
        return;
      }
      case act::close: closing_ = true; return workers_.close(now_, 1ms * (s.pick % 10'000));
      case act::count: return;
    }
  }

  void settle() {
    for (worker_command& c : workers_.advance(now_)) std::visit([this](auto& one) { carry_out(one); }, c);
  }
  process_here& one(worker_ref who) {
    const auto it = here_.find(who.worker);
    require(it != here_.end() && it->second.who == who, "a command about a process that does not exist");
    return it->second;
  }
  void carry_out(start_worker& order) {
    require(!here_.contains(order.who.worker), "a second process in one place");
    require(!closing_ && !failed_, "a process was started after the end");
    here_[order.who.worker].who = order.who;
  }
  void carry_out(introduce_worker& order) {
    require(one(order.who).step == 2, "introduced at the wrong time");
  }
  void carry_out(hand_over_worker& order) {
    require(one(order.who).step == 5, "handed over before it was ready");
  }
  void carry_out(retire_worker& order) { one(order.who).retired = true; }
  void carry_out(stop_worker& order) {
    require(closing_, "asked to stop before the session ends");
    one(order.who).told_to_stop = true;
  }
  void carry_out(signal_worker& order) {
    process_here& p = one(order.who);
    require(!p.killed, "a signal after SIGKILL");
    p.killed = order.number == SIGKILL;
  }
  void carry_out(decide_blame& end) {
    if (settings_.forgets_deaths && ++decided_ % 5 == 0) return;
    waiting_.push_back(end.who);
  }
  void carry_out(workers_failed&) { failed_ = true; }
  void carry_out(workers_closed&) {
    require(!std::exchange(closed_, true), "it closed twice");
    require(here_.empty(), "it closed although a process was alive");
  }
  template <class Other>
  void carry_out(Other&) {}

  void answer() {
    for (const worker_ref who : std::exchange(waiting_, {}))
      static_cast<void>(workers_.blame_decided(who, now_, false, 1, ""));
  }

  /// No more faults: every wanted place is filled, or all processes have exited.
  void finish() {
    if (!closing_) {
      workers_.scale(3, now_);
      for (std::uint32_t w = 0; w < 3; ++w) workers_.restart(w, now_);
    }
    for (int i = 0; i < 4000; ++i) {
      pass(100ms);
      settle();
      answer();
      settle();
      for (auto& [place, p] : std::map(here_)) {
        process_here& now_here = here_.at(place);
        if (now_here.killed && now_here.stalled) {
          refuse_start(now_here);
        } else if (now_here.killed && now_here.step > 0) {
          die(now_here, signalled(SIGKILL));
        } else if ((now_here.told_to_stop || now_here.retired) && !now_here.frozen) {
          die(now_here, exited(0));
        } else {
          advance(now_here);
        }
        settle();
        answer();
        settle();
      }
      if (closed_ || (!closing_ && (failed_ || all_ready()))) return;
    }
    require(!closing_, "it was asked to close but did not");
    require(false, "a wanted place stayed empty");
  }
  [[nodiscard]] bool all_ready() const {
    std::uint32_t ready = 0;
    for (const auto& [place, p] : here_) ready += place < 3 && p.step == 5 && !p.frozen && !p.retired ? 1 : 0;
    return ready == 3;
  }

  const world_settings settings_;
  steady_time now_ = steady_time(1h);
  worker_supervision workers_;
  std::map<std::uint32_t, process_here> here_;
  std::vector<worker_ref> waiting_;
  std::uint64_t beats_ = 2;
  int decided_ = 0;
  bool closing_ = false;
  bool closed_ = false;
  bool failed_ = false;
};

script random_script(testing::random_choice& choose) {
  script steps(1 + choose.below(400));
  for (auto& s : steps) {
    s.what = choose.below(3) != 0 ? (choose.below(2) == 0 ? act::pass : act::advance_one)
                                  : static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    if (s.what == act::close && choose.below(8) != 0) s.what = act::pass;
    s.pick = choose.below(1U << 20U);
  }
  return steps;
}

std::size_t run(const world_settings& settings, const script& steps) {
  world(settings).run(steps);
  return steps.size();
}

const testing::model<act, world_settings> model{
    .name = "worker supervision model", .act_names = act_names, .random_script = random_script, .run = run};

}  // namespace

TEST_CASE(
    "no order of events leaves a wanted place empty, two processes in one, or a session that does not close") {
  testing::explore(model);
}

TEST_CASE("the model test of the workers' supervision finds an injected bug") {
  CHECK(testing::finds_a_mistake(model, {.forgets_deaths = true}));
}
