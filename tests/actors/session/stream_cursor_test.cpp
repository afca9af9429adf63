// The stream cursor's decisions for each request of the consumer, without processes.
#include "actors/session/stream_cursor.hpp"

#include "runtime/base/result.hpp"

#include <catch2/catch_test_macros.hpp>

#include <thread>

using namespace penstock;
using namespace penstock::session;

namespace {

/// Epochs of 5 batches; the config requests two epochs.
struct open_cursor {
  explicit open_cursor(schedule::stream_range range = {0, 10}) {
    cursor.open(std::make_shared<const plan>(value_or_throw(plan::create({20, 1, true, 4, false, 0, 1}))),
                nullptr, range);
  }
  stream_cursor cursor{2};

  void take(std::uint64_t batches) {
    for (std::uint64_t i = 0; i < batches; ++i) cursor.taken(place++);
  }
  stream_position place = 0;
};

constexpr schedule::stream_range epoch_0{0, 5};
constexpr schedule::stream_range epoch_1{5, 10};

}  // namespace

TEST_CASE("the next epoch continues the stream, any other epoch seeks, and each stops at its end") {
  open_cursor c;
  CHECK(c.cursor.step_in(epoch_0, true) == next_step::take);
  CHECK(c.cursor.step_in(epoch_1, true) == next_step::seek);
  c.take(4);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::take);
  c.take(1);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::epoch_over);
  CHECK(c.cursor.step_in(epoch_1, true) == next_step::take);
  c.take(5);
  CHECK(c.cursor.step_in(epoch_1, false) == next_step::stream_over);
  CHECK(c.cursor.everything_taken());
}

TEST_CASE("an epoch is over only when its late batch has been taken too") {
  open_cursor c;
  for (const stream_position p : {0, 2, 3, 4}) c.cursor.taken(p);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::take);
  CHECK(c.cursor.step_in(epoch_1, true) == next_step::seek);
  c.cursor.taken(1);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::epoch_over);
  CHECK(c.cursor.step_in(epoch_1, true) == next_step::take);
}

TEST_CASE("an epoch of which an early batch has been taken starts again when iterated again") {
  open_cursor c;
  c.cursor.taken(1);
  CHECK(c.cursor.step_in(epoch_0, true) == next_step::seek);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::take);
}

TEST_CASE("a resumed stream ends without the batches that an earlier run delivered early") {
  open_cursor c({3, 10, 0b1});  // 4
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::take);
  c.cursor.taken(3);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::epoch_over);
  for (stream_position p = 5; p < 10; ++p) c.cursor.taken(p);
  CHECK(c.cursor.everything_taken());
}

TEST_CASE("a wait for the first epoch can be interrupted and repeated") {
  stream_cursor cursor(2);
  int calls = 0;
  const auto look = [&] {
    if (++calls == 2) throw std::runtime_error("interrupted");
    if (calls == 3) cursor.give_up();
  };
  CHECK_THROWS_AS(cursor.wait_for_epoch(0, look), std::runtime_error);
  CHECK_FALSE(cursor.wait_for_epoch(0, look));
  CHECK(calls == 3);
}

TEST_CASE("an epoch left in the middle starts at its first batch when iterated again") {
  open_cursor c;
  c.take(3);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::take);
  CHECK(c.cursor.step_in(epoch_0, true) == next_step::seek);
  CHECK(c.cursor.end());
  const auto order = c.cursor.begin_seek(epoch_0);
  CHECK(order.number == 1);
  CHECK(order.range.first == 0);
  CHECK(order.range.end == 10);
  CHECK_FALSE(c.cursor.wants(0));
  CHECK(c.cursor.wants(1));
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::take);
  CHECK(c.cursor.end());  // the epoch can end again
  CHECK_FALSE(c.cursor.end());
}

TEST_CASE("an epoch after the config's last one is prepared to its own end") {
  open_cursor c;
  const auto order = c.cursor.begin_seek({20, 25});
  CHECK(order.range.first == 20);
  CHECK(order.range.end == 25);
  c.place = 20;
  c.take(5);
  CHECK(c.cursor.step_in({20, 25}, false) == next_step::stream_over);
}

TEST_CASE("a stream that entered an epoch in the middle starts it there, but not after seeking back") {
  // 20 samples in batches of 4; epoch 1 is entered at position 10, so its batches 2, 3 and 4 remain.
  plan_settings settings{.samples = 20, .seed = 1, .batch_size = 4};
  settings.entered_epoch = 1;
  settings.entered_at = 10;
  stream_cursor cursor{3};
  cursor.open(std::make_shared<const plan>(value_or_throw(plan::create(settings))), nullptr, {7, 15});
  CHECK(cursor.wait_for_epoch(1)->first == 7);
  CHECK(cursor.step_in(*cursor.wait_for_epoch(1), true) == next_step::take);
  CHECK(cursor.begin_seek(*cursor.wait_for_epoch(2)).plan == nullptr);
  CHECK(cursor.wait_for_epoch(1)->first == 7);
  const auto back = cursor.begin_seek(*cursor.wait_for_epoch(0));
  REQUIRE(back.plan);
  CHECK_FALSE(back.plan->shape().has_entered());
  CHECK(cursor.wait_for_epoch(1)->first == 5);
  CHECK(cursor.begin_seek(*cursor.wait_for_epoch(0)).plan == nullptr);
}

TEST_CASE("only the newest range may continue") {
  open_cursor c;
  std::uint64_t one = 0;
  std::uint64_t other = 0;
  CHECK(c.cursor.enter(0, one));
  CHECK_FALSE(c.cursor.enter(0, one));
  CHECK(c.cursor.enter(1, other));
  CHECK_THROWS_AS(c.cursor.enter(0, one), error);
  c.cursor.begin_iteration();
  CHECK_THROWS_AS(c.cursor.enter(1, other), error);
}

TEST_CASE("a wait for a stream that never opens ends, and a wait for a stream that opens gets its epoch") {
  stream_cursor never(2);
  std::optional<schedule::stream_range> range = epoch_0;
  std::jthread waiting([&] { range = never.wait_for_epoch(0); });
  never.give_up();
  waiting.join();
  CHECK_FALSE(range);
  open_cursor c;
  c.cursor.give_up();  // a stop does not change what is known
  CHECK(c.cursor.wait_for_epoch(1)->first == 5);
  CHECK_THROWS_AS(c.cursor.wait_for_epoch(~std::uint64_t{0}), error);
}

TEST_CASE("everything has been taken only at the end of the config's last epoch, wherever the range ends") {
  open_cursor c({0, 3});
  c.take(3);
  CHECK(c.cursor.step_in(epoch_0, false) == next_step::take);  // only the next call learns that there are no more batches
  CHECK_FALSE(c.cursor.everything_taken());
  open_cursor whole;
  whole.cursor.reach_end();
  CHECK(whole.cursor.everything_taken());
}
