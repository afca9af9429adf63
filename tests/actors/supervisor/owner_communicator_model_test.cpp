// Model test of the keeper's handling of a communicator in a simulated world: a group that creates ids, makes, aborts
// and agrees, or continues without waiting; processes that make, break and abort communicators, take steps, hang,
// finish or die at any time; and a keeper that carries out its orders. Invariants are checked after every step
// against the world's own records. A failing script is shrunk and printed.
#include "actors/supervisor/owner_communicator.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <map>

using namespace penstock;
using namespace penstock::supervisor;
using namespace std::chrono_literals;
using gpu_owner::communicate;
using progress = group::communicator_state::how;
using testing::require;

namespace {

// clang-format off
enum class act : std::uint8_t { open, draw, answer_draw, make, abort, agree, answer_make, answer_abort, fail, take, take_bare, die, finish,
                                pass, free, count };
constexpr const char* act_names[] = {"open", "draw", "answer_draw", "make", "abort", "agree", "answer_make", "answer_abort", "fail", "take",
                                     "take_bare", "die", "finish", "pass", "free"};
// clang-format on
using script = testing::script_of<act>;

enum class bug : std::uint8_t { none, loses_a_snapshot, forgets_to_replace, loses_an_answer, sends_twice };

struct world_settings {
  bool draws = true;  // this process creates ids; otherwise another rank does
  bug planted = bug::none;
};

constexpr nanoseconds abort_timeout = 10s;
std::uint64_t counted_in_all = 0;
std::uint64_t replaced_in_all = 0;
std::uint64_t lost_ids_in_all = 0;
std::uint64_t overdue_in_all = 0;

class world {
 public:
  explicit world(const world_settings& settings) : settings_(settings) { start(); }

  std::size_t run(const script& steps) {
    for (const auto& s : steps) {
      perform(s);
      if (leaving_ && s.pick % 3 == 0) end(false);
    }
    come_to_rest();
    return steps.size();
  }

 private:
  struct process_here {
    std::uint32_t incarnation = 0;
    std::uint64_t given = 0;  // the step of its snapshot
    std::uint64_t step = 0;   // the last step that it has taken
    bool ready = false;
    bool was_member = false;
    std::uint64_t number = 0;  // number of the communicator that it makes or has
    bool aborting = false;
    std::uint64_t to_draw = 0;
  };
  struct delivery {
    std::uint32_t incarnation = 0;
    std::uint64_t step = 0;
    bool counted = false;
  };

  // ---- the keeper --------------------------------------------------------------------------------------------

  void start() {
    leaving_ = false;
    process_ = process_here{++incarnations_};
    process_.given = process_.step = one_.introduced();
    require(process_.given == kept_, "a process starts from a snapshot that is not the newest valid one");
  }

  void end(bool finished) {
    const std::uint64_t had = process_.number;
    const std::size_t before = told_.size();
    process_.ready = false;
    carry_out(one_.ended(finished));
    if (had != 0 && !finished) {
      require(told_.size() == before + 2 && told_[before].number == had &&
                  told_[before].at == progress::broken && told_[before + 1].at == progress::aborted,
              "the group does not hear that a communicator is lost with its process");
      settle(had);
    }
    start();
  }

  void carry_out(owner_communicator::orders what) {
    for (const auto& news : what.agreed) {
      for (const protocol::wire_delivery& d : news.deliveries) count(d.upload);
    }
    if (what.snapshot) {
      const std::uint64_t step = std::stoull(*what.snapshot);
      require(step >= kept_, "an earlier snapshot replaces a later one");
      require(free_ || step <= agreed_, "a snapshot of a step that is not agreed is kept");
      if (settings_.planted != bug::loses_a_snapshot) kept_ = step;
    }
    if (what.held) {
      held_ = *what.held;
      require(held_.size() <= group::held_max, "too many snapshots are held");
      require(std::ranges::is_sorted(held_) && std::ranges::adjacent_find(held_) == held_.end(),
              "held steps do not ascend");
      require(held_.empty() || held_.front() > agreed_, "an agreed step is still held");
    }
    for (const group::communicator_state& state : what.told) {
      told_.push_back(state);
      if (state.at == progress::aborted && settings_.planted != bug::loses_an_answer) settle(state.number);
      if (state.at != progress::made && make_ == state.number) make_ = 0;
    }
    for (const protocol::wire_communicate& order : what.send) hear(order);
    if (settings_.planted == bug::sends_twice) {
      for (const protocol::wire_communicate& order : what.send) hear(order);
    }
    if (what.replace && settings_.planted != bug::forgets_to_replace) {
      leaving_ = true;
      ++replaced_in_all;
    }
  }

  void count(std::uint64_t upload) {
    delivery& d = deliveries_.at(upload);
    require(!std::exchange(d.counted, true), "a delivery counts twice");
    require(d.incarnation == process_.incarnation && process_.ready,
            "a delivery of a process that is gone counts");
    require(free_ || d.step <= agreed_, "a delivery counts before its step is agreed");
    ++counted_in_all;
  }

  // ---- the process -------------------------------------------------------------------------------------------

  void hear(const protocol::wire_communicate& order) {
    require(process_.ready, "an order is sent to a process that does not accept orders");
    switch (static_cast<communicate::act>(order.what)) {
      case communicate::act::draw_id: process_.to_draw = order.number; break;
      case communicate::act::make:
        require(!process_.was_member && process_.number != order.number,
                "a process makes a second communicator");
        require(process_.given == kept_, "a process with another snapshot makes a communicator");
        require(order.number == make_, "a communicator is made although the group does not want it");
        require(!settings_.draws || drawn_by_[order.number] == process_.incarnation,
                "a communicator is made by a process other than the one that created its id");
        process_.number = order.number;
        process_.aborting = false;
        break;
      case communicate::act::abort: process_.aborting = true; break;
      default: break;
    }
  }

  void deliver(bool snapshot) {
    // A step beyond the agreed one needs all ranks.
    const bool alone = free_ || process_.step < agreed_;
    if (!process_.ready || (!alone && (!process_.was_member || process_.number == 0))) return;
    protocol::batches_delivered news;
    news.deliveries.resize(1);
    news.deliveries[0].upload = ++uploads_;
    news.uploads = 1;
    news.snapshots = snapshot;
    if (snapshot) news.snapshot = std::to_string(process_.step + 1);
    deliveries_[uploads_] = {process_.incarnation, ++process_.step, false};
    carry_out(one_.delivered(process_.step, std::move(news)));
  }

  void tell(progress at) {
    const std::uint64_t number = process_.number;
    if (at == progress::made) process_.was_member = true;
    if (at == progress::aborted) process_.number = 0;
    process_.aborting = process_.aborting && process_.number != 0;
    carry_out(one_.told({number, at, {}}));
  }

  // ---- the group ---------------------------------------------------------------------------------------------

  void order(communicate::act what, std::uint64_t number, std::uint64_t agreed = 0) {
    carry_out(one_.ordered({what, number, "id", agreed}, now_));
  }

  void settle(std::uint64_t number) { aborts_.erase(number); }

  void draw() {
    if (!settings_.draws) {
      drawn_ = ++numbers_;
      return;
    }
    wanted_ = ++numbers_;
    order(communicate::act::draw_id, wanted_);
  }

  void answer_draw() {
    if (!process_.ready || process_.to_draw == 0) return;
    const std::uint64_t number = std::exchange(process_.to_draw, 0);
    one_.drawn(number);
    drawn_by_[number] = process_.incarnation;
    drawn_ = number;
    if (wanted_ == number) wanted_ = 0;
  }

  /// All ranks return to the newest step of which all have a snapshot.
  void make(std::uint32_t pick) {
    // The group first waits until no rank has part of the previous communicator.
    if (drawn_ == 0 || make_ != 0 || process_.number != 0 || free_) return;
    make_ = std::exchange(drawn_, 0);
    agreed_ = std::max(agreed_, some_step(pick));
    const bool lost = settings_.draws && drawn_by_[make_] != process_.incarnation;
    const std::uint64_t number = make_;
    lost_ids_in_all += lost ? 1 : 0;
    order(communicate::act::make, number, agreed_);
    require(held_.empty(), "deliveries beyond the agreed step are held when a new communicator begins");
    require(!lost || make_ == 0, "the group does not hear that an id is lost");
  }

  void abort() {
    const std::uint64_t number = process_.number != 0 ? process_.number : make_;
    if (number == 0) return;
    if (make_ <= number) make_ = 0;
    aborts_[number] = now_;
    order(communicate::act::abort, number);
    require(!aborts_.contains(number) || process_.aborting,
            "an abort is neither answered nor sent to the process");
  }

  [[nodiscard]] std::uint64_t some_step(std::uint32_t pick) const {
    return held_.empty() || pick % 4 == 0 ? agreed_ : held_[pick % held_.size()];
  }

  void agree(std::uint32_t pick) {
    if (free_) return;
    // A restarted rank learns of steps that it has not taken.
    agreed_ =
        std::max(agreed_, incarnations_ == 1 && uploads_ == 0 && pick % 5 == 0 ? pick % 7 : some_step(pick));
    order(communicate::act::agreed, 0, agreed_);
  }

  // ---- the script --------------------------------------------------------------------------------------------

  void perform(const testing::step<act>& s) {
    now_ += 100ms;
    const bool makes = process_.ready && process_.number != 0 && !process_.was_member;
    switch (s.what) {
      case act::open:
        if (!std::exchange(process_.ready, true)) carry_out(one_.ready());
        break;
      case act::draw: draw(); break;
      case act::answer_draw: answer_draw(); break;
      case act::make: make(s.pick); break;
      case act::abort: abort(); break;
      case act::agree: agree(s.pick); break;
      case act::answer_make:
        if (makes) tell(progress::made);
        break;
      case act::answer_abort:
        if (process_.ready && process_.aborting) tell(progress::aborted);
        break;
      case act::fail:
        if (process_.ready && process_.number != 0) tell(progress::broken);
        break;
      case act::take:
        // Sometimes takes several times as many batches as can be held.
        for (std::uint32_t i = 0; i < (s.pick % 50 == 0 ? 40U : 1U); ++i) deliver(true);
        break;
      case act::take_bare: deliver(false); break;
      case act::die: end(false); break;
      case act::finish:
        if (process_.ready && process_.number == 0) end(true);
        break;
      case act::pass: pass(s.pick % 8 == 0 ? 31s : 1s); break;
      case act::free:
        if (s.pick % 6 != 0 || free_) break;
        free_ = true;
        order(communicate::act::free, 0);
        break;
      case act::count: break;
    }
  }

  /// How long ago the current process was asked to abort; zero if it was not, or has answered.
  [[nodiscard]] nanoseconds abort_takes() const {
    const auto asked = aborts_.find(process_.number);
    return process_.number == 0 || asked == aborts_.end() ? nanoseconds(0) : now_ - asked->second;
  }

  void pass(nanoseconds time) {
    for (const steady_time until = now_ + time; now_ < until;) {
      now_ += owner_communicator::look_every;
      auto what = one_.look(now_);
      require(!what.replace || abort_takes() >= 3 * abort_timeout,
              "a process is replaced that has answered each abort, or has time to");
      if (what.replace) {
        overdue_ = process_.incarnation;
        ++overdue_in_all;
      }
      carry_out(std::move(what));
    }
    require(time <= 3 * abort_timeout || abort_takes() == nanoseconds(0) || leaving_ ||
                overdue_ == process_.incarnation,
            "a process that does not answer an abort stays");
  }

  /// From now on there are no faults: whatever the group orders succeeds.
  void come_to_rest() {
    for (int i = 0; i < 12; ++i) {
      if (leaving_) end(false);
      perform({act::open, 0});
      answer_draw();
      if (process_.number != 0 && !process_.was_member && !process_.aborting) tell(progress::made);
      if (process_.aborting) tell(progress::aborted);
    }
    require(aborts_.empty(), "an abort is never answered");
    require(wanted_ == 0, "an id that the group wants is never drawn");
    require(make_ == 0 || process_.number == make_, "a communicator that the group wants is never made");
    for (const auto& [upload, d] : deliveries_) {
      require(d.counted || d.incarnation != process_.incarnation || (!free_ && d.step > agreed_),
              "a delivery of an agreed step never counts");
    }
  }

  const world_settings settings_;
  owner_communicator one_{abort_timeout};
  steady_time now_{};
  process_here process_;
  bool leaving_ = false;  // the process will be replaced
  std::uint32_t incarnations_ = 0;
  std::uint32_t overdue_ = 0;

  std::uint64_t kept_ = 0;
  std::uint64_t agreed_ = 0;
  bool free_ = false;
  std::vector<std::uint64_t> held_;
  std::uint64_t uploads_ = 0;
  std::map<std::uint64_t, delivery> deliveries_;

  std::uint64_t numbers_ = 0;
  std::uint64_t wanted_ = 0;  // the communicator whose id must be created
  std::uint64_t drawn_ = 0;   // the id with which to make a communicator
  std::uint64_t make_ = 0;    // the communicator that the group wants
  std::map<std::uint64_t, std::uint32_t> drawn_by_;
  std::map<std::uint64_t, steady_time> aborts_;  // aborts that have not been answered
  std::vector<group::communicator_state> told_;
};

script random_script(testing::random_choice& choose) {
  script steps(20 + choose.below(100));
  for (auto& s : steps) {
    s.what = static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    // Half of the steps work towards a communicator, so that there is one to lose.
    constexpr act usual[] = {act::open, act::draw, act::answer_draw, act::make, act::answer_make, act::take};
    if (choose.below(2) == 0) s.what = usual[choose.below(std::size(usual))];
    s.pick = choose.below(1000);
  }
  return steps;
}

const testing::model<act, world_settings> the_model{
    .name = "owner_communicator",
    .act_names = act_names,
    .random_script = random_script,
    .random_settings =
        [](testing::random_choice& choose) {
          return world_settings{choose.below(3) != 0, bug::none};
        },
    .describe = [](const world_settings& s) { return fmt::format("draws: {}", s.draws); },
    .run = [](const world_settings& s, const script& steps) { return world(s).run(steps); }};

}  // namespace

TEST_CASE("despite losses, late answers and repeated orders, every step counts exactly once, and not early") {
  testing::explore(the_model);
  CHECK(testing::is_tried(counted_in_all, 20'000));
  CHECK(testing::is_tried(replaced_in_all, 5'000));
  CHECK(testing::is_tried(lost_ids_in_all, 500));
  CHECK(testing::is_tried(overdue_in_all, 100));
}

TEST_CASE("the model of a communicator finds a keeper that ignores its orders") {
  for (const bug planted :
       {bug::loses_a_snapshot, bug::forgets_to_replace, bug::loses_an_answer, bug::sends_twice})
    CHECK(testing::finds_a_mistake(the_model, world_settings{true, planted}));
}
