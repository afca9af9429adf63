// The gate between a group and the code that hands out its batches.
#include "actors/protocol/local/hand_over_gate.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace std::chrono_literals;

namespace {
constexpr steady_time start{1h};
}

TEST_CASE("a new gate is shut") {
  hand_over_gate gate;
  CHECK(gate.hand_out_next(start) == gate_answer::wait);
  CHECK_FALSE(gate.begun());
}

TEST_CASE("batches pass the gate until the permission expires") {
  hand_over_gate gate;
  CHECK(gate.open(start + 10s, {}) == 0);
  CHECK(gate.hand_out_next(start) == gate_answer::go);
  CHECK(gate.hand_out_next(start + 9s) == gate_answer::go);
  CHECK(gate.hand_out_next(start + 10s) == gate_answer::wait);
  CHECK(gate.handed_out() == 2);
}

TEST_CASE("the gate remembers that a batch had to wait until take_waiting() is called") {
  hand_over_gate gate;
  gate.open(start + 10s, {});
  CHECK(gate.hand_out_next(start) == gate_answer::go);
  CHECK_FALSE(gate.take_waiting());
  CHECK(gate.hand_out_next(start + 10s) == gate_answer::wait);
  gate.open(start + 20s, {});
  CHECK(gate.take_waiting());
  CHECK_FALSE(gate.take_waiting());
}

TEST_CASE("shutting the gate returns how many batches have passed, and no further batch passes") {
  hand_over_gate gate;
  gate.open(start + 10s, {});
  CHECK(gate.hand_out_next(start) == gate_answer::go);
  CHECK(gate.shut() == 1);
  CHECK(gate.hand_out_next(start) == gate_answer::wait);
}

TEST_CASE("exactly as many batches as the limit pass, and the last one is reported") {
  int told = 0;
  hand_over_gate gate([&] { ++told; });
  gate.open(start + 10s, 2);
  CHECK(gate.hand_out_next(start) == gate_answer::go);
  CHECK(told == 0);
  CHECK(gate.hand_out_next(start) == gate_answer::go);
  CHECK(told == 1);
  CHECK(gate.hand_out_next(start) == gate_answer::wait);
  gate.open(start + 10s, 3);
  CHECK(gate.hand_out_next(start) == gate_answer::go);
  CHECK(told == 2);
}

TEST_CASE("a step that has passed may pass again, because its receiver may have died") {
  hand_over_gate gate;
  gate.open(start + 10s, 1);
  CHECK(gate.hand_out(1, start) == gate_answer::go);
  CHECK(gate.hand_out(1, start) == gate_answer::go);
  CHECK(gate.hand_out(2, start) == gate_answer::wait);
  CHECK(gate.shut() == 1);
  CHECK(gate.hand_out(1, start) == gate_answer::wait);
  gate.end();
  CHECK(gate.hand_out(1, start) == gate_answer::go);
  CHECK(gate.hand_out(2, start) == gate_answer::over);
  CHECK(gate.ends_with(1));
  CHECK_FALSE(gate.ends_with(0));
}
