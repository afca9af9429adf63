// Model test of the orders to a template in a simulated world: workers that start and are given up; a template whose start works or fails,
// and that prepares, declines, forks, answers, and dies between any two of these; and a socket that soon fills up. A failing script is
// shrunk and printed.
#include "runtime/process/fork_book.hpp"

#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <deque>
#include <map>
#include <optional>
#include <set>

using namespace penstock;
using namespace std::chrono_literals;
using process::fork_book;
using testing::require;

namespace {

// clang-format off
enum class act : std::uint8_t { pass, start, give_up, execute, fail_to_execute, get_ready, decline, fork, refuse, hear,
                                die, die_with_worker, die_before_answer, count };
constexpr const char* act_names[] = {"pass", "start", "give_up", "execute", "fail_to_execute", "get_ready", "decline", "fork", "refuse",
                                     "hear", "die", "die_with_worker", "die_before_answer"};
// clang-format on
using script = testing::script_of<act>;
using number = fork_book::number;
using stage = fork_book::stage;

struct world_settings {
  std::size_t socket_room = 2;
  int ends_max = 3;              // after that many counted ends, workers start with exec
  bool forgets_answers = false;  // an injected bug: answers that arrive with the end are not read
};

struct tries {
  std::uint64_t started = 0, lost = 0, unwanted = 0, repeated = 0, declined = 0, sent_again = 0;
};
tries tried;

class world {
 public:
  explicit world(const world_settings& settings) : settings_(settings) {}

  void run(const script& steps) {
    for (const auto& s : steps) {
      perform(s);
      settle();
    }
    finish();
  }

 private:
  enum class answer_kind : std::uint8_t { ready, declined, forked, refused };
  struct answer {
    answer_kind what{};
    number order = 0;
    std::uint64_t child = 0;
  };
  struct template_here {
    bool running = false;   // the template's exec has succeeded
    bool prepared = false;  // the template has said that it is ready or declines
    bool has_declined = false;
    std::deque<number> has;   // orders in the template's socket
    std::deque<answer> says;  // answers that the session has not read
  };

  void perform(const testing::step<act>& s) {
    switch (s.what) {
      case act::pass: now_ += 50ms * (s.pick % 20); return;
      case act::start: return start(s.pick % 4);
      case act::give_up: return give_up(s.pick % 4);
      case act::execute: return execute();
      case act::fail_to_execute: return fail_to_execute();
      case act::get_ready: return prepare(answer_kind::ready);
      case act::decline:
        if (s.pick % 8 == 0) prepare(answer_kind::declined);
        return;
      case act::fork: return fork(true, true);
      case act::refuse:
        if (has_order()) here_->says.push_back({answer_kind::refused, taken(), 0});
        return;
      case act::hear: return hear();
      case act::die: return die();
      case act::die_with_worker:  // between clone and both answers: the worker is still in the template's process group
        if (has_order()) taken(), die();
        return;
      case act::die_before_answer:  // one of the two answers has been sent
        if (has_order()) fork(s.pick % 2 == 0, s.pick % 2 != 0), die();
        return;
      case act::count: return;
    }
  }

  void start(std::uint32_t worker) {
    if (book_.at() == stage::declined || worker_of(worker)) return;
    waits_[book_.add(worker)] = worker;
  }

  void give_up(std::uint32_t worker) {
    const auto order = worker_of(worker);
    const auto given_up = book_.give_up(worker, now_);
    require(order.has_value() == given_up.has_value(),
            "a start that waited could not be given up, or one that did not could");
    if (!given_up) return;
    require(given_up->order == *order, "the start of the wrong worker was given up");
    over(*order);
    given_up_.insert(*order);
    if (!given_up->kill) return;
    if (here_ && here_->running) return die();
    fail_to_execute();
  }

  [[nodiscard]] std::optional<number> worker_of(std::uint32_t worker) const {
    for (const auto& [order, who] : waits_)
      if (who == worker) return order;
    return std::nullopt;
  }

  void over(number order) { require(waits_.erase(order) == 1, "an order that had ended ended again"); }

  // ---- the template ---------------------------------------------------------------------------------------

  void execute() {
    if (!here_ || here_->running) return;
    here_->running = true;
    if (!book_.executed()) die();
  }

  void fail_to_execute() {
    if (!here_ || here_->running) return;
    here_.reset();
    for (const number order : book_.not_executed()) over(order);
    require(waits_.empty(), "a worker waits for a template that could not be started");
  }

  void prepare(answer_kind what) {
    const bool declines = what == answer_kind::declined;  // the template may decline at any time
    if (!here_ || !here_->running || here_->has_declined || (here_->prepared && !declines)) return;
    here_->prepared = true;
    here_->has_declined = declines;
    here_->says.push_back({what, 0, 0});
  }

  [[nodiscard]] bool has_order() const { return here_ && !here_->has.empty() && !here_->has_declined; }
  number taken() {
    const number order = here_->has.front();
    here_->has.pop_front();
    return order;
  }

  void fork(bool template_answers, bool worker_answers) {
    if (!has_order()) return;
    const number order = taken();
    const std::uint64_t child = ++last_child_;
    unknown_.insert(child);
    if (template_answers) here_->says.push_back({answer_kind::forked, order, child});
    if (worker_answers) here_->says.push_back({answer_kind::forked, order, child});
  }

  void hear() {
    if (!here_ || here_->says.empty()) return;
    const answer got = here_->says.front();
    here_->says.pop_front();
    switch (got.what) {
      case answer_kind::ready: return book_.ready();
      case answer_kind::declined: return decline();
      case answer_kind::refused:
      case answer_kind::forked: break;
    }
    const auto meaning = book_.answered(got.order, now_);
    const bool first = answered_.insert(got.order).second;
    require((meaning == fork_book::meaning::repeated) == !first, "an answer was taken twice or never");
    if (!first) {
      ++tried.repeated;
      return;
    }
    unknown_.erase(got.child);  // given to its place, or killed
    require((meaning == fork_book::meaning::given_up) == given_up_.contains(got.order),
            "the answer to a start that was given up was not recognised, or that to another start was taken for one");
    if (meaning == fork_book::meaning::awaited) over(got.order), ++tried.started;
    if (meaning == fork_book::meaning::given_up) ++tried.unwanted;
  }

  void decline() {
    for (const number order : book_.declined()) over(order);
    require(waits_.empty(), "a worker waits for a template that has declined");
    ++tried.declined;
    here_.reset();  // it exits
  }

  void die() {
    if (!here_ || !here_->running) return;
    while (!settings_.forgets_answers && here_ && !here_->says.empty()) hear();
    require(unknown_.empty(), "the session does not know a living worker");
    here_.reset();
    if (book_.at() == stage::declined) return;
    const bool was_ready = book_.at() == stage::ready;
    const std::size_t waited = waits_.size();
    const auto end = book_.ended();
    for (const number order : end.lost) over(order), ++tried.lost;
    require(was_ready ? end.lost.size() <= 1 : end.lost.size() == waited,
            "its end took other workers than those that it stands for");
    for (const number order : end.lost)
      require(!was_ready || sent_.contains(order),
              "the end of a template was taken for that of a worker that it did not know");
    require(end.counts || !was_ready, "the end of a ready template does not count");
    for (const auto& [order, worker] : waits_) tried.sent_again += sent_.contains(order) ? 1U : 0U;
    sent_.clear();
    if (!end.counts) return;
    if (++ends_ > settings_.ends_max) return decline();
    book_.execute_from(earliest_ = now_ + 200ms * ends_);
  }

  // ---- what the session does at once ----------------------------------------------------------------------

  void settle() {
    if (book_.must_execute(now_)) {
      require(!here_, "a second template was started");
      require(now_ >= earliest_, "a template was started too early");
      book_.executing();
      here_.emplace();
    }
    while (here_ && here_->has.size() < settings_.socket_room) {
      const auto order = book_.to_send();
      if (!order) break;
      require(here_->prepared, "an order was sent to a template that is not ready");
      require(sent_.insert(*order).second, "an order was sent twice to one template");
      require(waits_.contains(*order), "an order was sent after it had ended");
      here_->has.push_back(*order);
      book_.sent(*order, now_);
    }
  }

  /// From here on everything works.
  void finish() {
    for (int i = 0; i < 100 && !waits_.empty(); ++i) {
      now_ += 1s;
      settle();
      execute();
      prepare(answer_kind::ready);
      fork(true, true);
      while (here_ && !here_->says.empty()) hear();
    }
    require(waits_.empty(), "a worker waits forever");
    while (here_ && !here_->says.empty()) hear();
    require(unknown_.empty(), "the session does not know a living worker");
  }

  world_settings settings_;
  fork_book book_;
  steady_time now_{}, earliest_{};
  std::optional<template_here> here_;
  std::map<number, std::uint32_t> waits_;
  std::set<number> given_up_, answered_, sent_;
  std::set<std::uint64_t> unknown_;  // living workers that the session does not know of
  std::uint64_t last_child_ = 0;
  int ends_ = 0;
};

script random_script(testing::random_choice& choose) {
  script steps(5 + choose.below(60));
  for (auto& s : steps) {
    // Usual steps are more likely than deaths.
    constexpr act usual[] = {act::start, act::execute, act::get_ready, act::fork,
                             act::hear,  act::hear,    act::pass};
    s.what = choose.below(3) != 0 ? usual[choose.below(std::size(usual))]
                                  : static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    s.pick = choose.below(1000);
  }
  return steps;
}

testing::model<act, world_settings> in_this_world() {
  testing::model<act, world_settings> m;
  m.name = "fork book";
  m.act_names = act_names;
  m.random_script = random_script;
  m.random_settings = [](testing::random_choice& choose) {
    return world_settings{1 + choose.below(4), static_cast<int>(choose.below(6)), false};
  };
  m.describe = [](const world_settings& s) {
    return fmt::format("socket_room {}, ends_max {}", s.socket_room, s.ends_max);
  };
  m.run = [](const world_settings& settings, const script& steps) {
    world(settings).run(steps);
    return steps.size();
  };
  return m;
}

}  // namespace

TEST_CASE("each start that waits for a template ends once, and no forked worker is forgotten") {
  tried = {};
  explore(in_this_world());
  CHECK(testing::is_tried(tried.started, 1000));
  CHECK(testing::is_tried(tried.lost, 1000));
  CHECK(testing::is_tried(tried.unwanted, 100));
  CHECK(testing::is_tried(tried.repeated, 1000));
  CHECK(testing::is_tried(tried.declined, 1000));
  CHECK(testing::is_tried(tried.sent_again, 100));
}

TEST_CASE("the model of a template finds a session that does not read the last answers") {
  CHECK(finds_a_mistake(in_this_world(), world_settings{2, 3, true}));
}

TEST_CASE("giving up a start kills only a template that does not answer") {
  const auto ready_with_orders = [] {
    fork_book book;
    for (const std::uint32_t worker : {0U, 1U}) static_cast<void>(book.add(worker));
    book.executing();
    REQUIRE(book.executed());
    book.ready();
    for (const number order : {1U, 2U}) book.sent(order, steady_time(10s));
    return book;
  };
  fork_book quick = ready_with_orders();
  CHECK(!quick.give_up(1, steady_time(10s + 20ms))->kill);
  fork_book slow = ready_with_orders();  // the second order waits for the first
  CHECK(slow.answered(1, steady_time(14s)) == fork_book::meaning::awaited);
  CHECK(!slow.give_up(1, steady_time(14s + 20ms))->kill);
  fork_book hanging = ready_with_orders();
  CHECK(hanging.give_up(1, steady_time(11s))->kill);
}
