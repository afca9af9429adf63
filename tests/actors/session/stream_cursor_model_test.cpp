// Model test of the stream cursor in a simulated world: a consumer that iterates over epochs in any order, leaves them in
// the middle, goes back to earlier ranges, is interrupted and calls next(); and a stream that prepares batches ahead, so
// that those of earlier seeks still arrive. Every batch is compared with the world's own account of what comes next. A
// failing script is shrunk and printed.
#include "actors/session/stream_cursor.hpp"
#include "runtime/base/result.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <deque>

using namespace penstock;
using namespace penstock::session;
using testing::require;

namespace {

enum class act : std::uint8_t { begin, go_on, interrupt, next, prepare, count };
constexpr const char* act_names[] = {"begin", "go_on", "interrupt", "next", "prepare"};
using script = testing::script_of<act>;

enum class bug : std::uint8_t {
  none,
  keeps_the_seek_number,
  ends_early,
  forgets_next,
  keeps_the_plan,
  forgets_the_end,
  skips_a_batch
};

struct world_settings {
  std::uint64_t epochs = 2;
  bool enters = false;  // the stream is entered in the middle of epoch 1
  bug planted = bug::none;
};

constexpr stream_position batches = 5;  // batches in each epoch
std::uint64_t seeks_in_all = 0;
std::uint64_t late_in_all = 0;
std::uint64_t stale_in_all = 0;
std::uint64_t ends_in_all = 0;

std::shared_ptr<const plan> plan_of(const world_settings& settings) {
  static const auto whole =
      std::make_shared<const plan>(value_or_throw(plan::create({.samples = 20, .seed = 1, .batch_size = 4})));
  static const auto entered = std::make_shared<const plan>(value_or_throw(
      plan::create({.samples = 20, .seed = 1, .batch_size = 4, .entered_epoch = 1, .entered_at = 10})));
  return settings.enters ? entered : whole;
}

class world {
 public:
  explicit world(const world_settings& settings)
      : settings_(settings), entered_(settings.enters), cursor_(settings.epochs) {
    const schedule::stream_range range{settings.enters ? batches + 2 : 0, settings.epochs * batches};
    next_ = prepared_ = range.first;
    end_ = range.end;
    cursor_.open(plan_of(settings), nullptr, range);
  }

  std::size_t run(const script& steps) {
    for (const auto& s : steps) perform(s);
    return steps.size();
  }

 private:
  /// A range over one epoch, as its consumer holds it.
  struct range {
    std::uint64_t epoch = 0;
    std::uint64_t iteration = 0;
    std::uint64_t begun = 0;  // in the world's own count of iterations
    stream_position next = 0;
  };
  struct ready_batch {
    std::uint64_t seek = 0;
    stream_position position = 0;
  };

  void perform(const testing::step<act>& s) {
    switch (s.what) {
      case act::begin:
        if (ranges_.size() == 3) ranges_.pop_front();
        ranges_.push_back({s.pick % (settings_.epochs + 2), 0, 0, 0});
        take_of(ranges_.back(), false);
        break;
      case act::go_on:
        if (!ranges_.empty()) take_of(ranges_[s.pick % ranges_.size()], false);
        break;
      case act::interrupt:
        if (!ranges_.empty()) take_of(ranges_[s.pick % ranges_.size()], true);
        break;
      case act::next:
        ++iterations_;
        if (settings_.planted != bug::forgets_next) cursor_.begin_iteration();
        take(next_);
        break;
      case act::prepare:
        for (std::uint32_t i = 0; i < s.pick % 4; ++i) prepare();
        break;
      case act::count: break;
    }
    require(cursor_.everything_taken() == (next_ >= settings_.epochs * batches),
            "everything has been taken, or has not, against the world's account");
  }

  bool prepare() {
    if (prepared_ + missing_ >= end_) return false;
    queue_.push_back({seek_, prepared_++});
    return true;
  }

  /// The next batch must be this one, unless the stream has ended.
  bool take(stream_position expected) {
    while (true) {
      if (queue_.empty() && !prepare()) {
        require(expected >= end_, "the stream ends before a requested batch");
        require(cursor_.end() != ended_, "an end is reported twice or never");
        ended_ = true;
        ++ends_in_all;
        return false;
      }
      const ready_batch one = queue_.front();
      queue_.pop_front();
      if (!cursor_.wants(one.seek)) {
        require(one.seek != seek_, "a batch of the current seek is dropped");
        ++late_in_all;
        continue;
      }
      require(one.seek == seek_, "a batch of an earlier seek is handed out");
      require(one.position == expected, "a batch is handed out twice, late or never");
      next_ = one.position + 1;
      if (settings_.planted != bug::skips_a_batch || one.position != 8) cursor_.taken(one.position);
      return true;
    }
  }

  void take_of(range& r, bool interrupted) {
    bool first = false;
    try {
      first = cursor_.enter(r.epoch, r.iteration);
    } catch (const error&) {
      require(r.begun != iterations_, "the newest range is not allowed to continue");
      ++stale_in_all;
      return;
    }
    if (first) r.begun = ++iterations_;
    require(r.begun == iterations_, "a range continues although another iteration has started");
    const auto epoch = cursor_.wait_for_epoch(r.epoch);
    const stream_position begin = r.epoch * batches + (entered_ && r.epoch == 1 ? 2 : 0);
    require(epoch && epoch->first == begin && epoch->end == (r.epoch + 1) * batches,
            "an epoch is at another place");
    if (first) r.next = begin;
    if (interrupted) {  // as if while_waiting threw: the next call starts the epoch
      if (first) r.iteration = 0;
      return;
    }
    switch (cursor_.step_in(*epoch, first)) {
      case next_step::seek:
        require(first && next_ != begin, "a range that could continue seeks");
        seek(*epoch);
        break;
      case next_step::take:
        require(next_ == r.next && r.next < epoch->end, "a range takes a batch that is not its next one");
        break;
      case next_step::epoch_over:
        require(r.next == epoch->end && next_ < end_, "an epoch or the stream ends too early");
        return;
      case next_step::stream_over:
        require(r.next == epoch->end && next_ >= end_, "the stream ends too early");
        return;
    }
    if (take(r.next)) ++r.next;
  }

  void seek(schedule::stream_range epoch) {
    ++seeks_in_all;
    const auto order = cursor_.begin_seek(epoch);
    require(order.number == seek_ + 1, "a seek has no unique number");
    require(order.range.first == epoch.first && order.range.end >= epoch.end,
            "a seek leads to another epoch");
    const bool back = entered_ && epoch.first < batches;
    require((order.plan != nullptr) == back,
            "a seek before the entered epoch keeps the plan, or another one changes it");
    if (back && settings_.planted != bug::keeps_the_plan) entered_ = false;
    if (settings_.planted != bug::keeps_the_seek_number) seek_ = order.number;
    prepared_ = next_ = order.range.first;
    end_ = std::max(epoch.end, settings_.epochs * batches);
    require(order.range.end == end_, "a seek prepares another part of the stream");
    missing_ = settings_.planted == bug::ends_early ? 1 : 0;
    if (settings_.planted != bug::forgets_the_end) ended_ = false;
  }

  const world_settings settings_;
  bool entered_;
  stream_cursor cursor_;
  std::deque<range> ranges_;  // batches that the consumer still holds
  std::deque<ready_batch> queue_;
  std::uint64_t seek_ = 0;
  std::uint64_t iterations_ = 0;
  stream_position prepared_ = 0;
  stream_position end_ = 0;  // position of the prepared batches
  stream_position missing_ = 0;
  stream_position next_ = 0;  // position of the consumer
  bool ended_ = false;        // the end has been reported since the last seek
};

script random_script(testing::random_choice& choose) {
  script steps(20 + choose.below(60));
  for (auto& s : steps) {
    s.what = choose.below(3) == 0 ? static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)))
                                  : act::go_on;
    s.pick = choose.below(1000);
  }
  return steps;
}

world_settings random_settings(testing::random_choice& choose) {
  const bool enters = choose.below(2) == 0;
  return {2 + choose.below(2), enters, bug::none};
}

std::string describe(const world_settings& s) {
  return fmt::format("{} epochs, enters: {}", s.epochs, s.enters);
}

const testing::model<act, world_settings> the_model{
    .name = "stream_cursor",
    .act_names = act_names,
    .random_script = random_script,
    .random_settings = random_settings,
    .describe = describe,
    .run = [](const world_settings& s, const script& steps) { return world(s).run(steps); }};

}  // namespace

TEST_CASE("in whatever order a consumer iterates, each range gets each of its batches once and in order") {
  testing::explore(the_model);
  CHECK(testing::is_tried(seeks_in_all, 20'000));
  CHECK(testing::is_tried(late_in_all, 2'000));
  CHECK(testing::is_tried(stale_in_all, 20'000));
  CHECK(testing::is_tried(ends_in_all, 1'000));
}

TEST_CASE("the model of a cursor finds a session that ignores its decisions") {
  for (const bug planted : {bug::keeps_the_seek_number, bug::ends_early, bug::forgets_next,
                            bug::keeps_the_plan, bug::forgets_the_end, bug::skips_a_batch}) {
    CAPTURE(static_cast<int>(planted));
    CHECK(testing::finds_a_mistake(the_model, world_settings{2, true, planted}));
  }
}
