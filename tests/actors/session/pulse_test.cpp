#include "actors/session/pulse.hpp"

#include <catch2/catch_test_macros.hpp>

using penstock::session::pulse;

TEST_CASE("a session beats when its scheduler answers, and not otherwise") {
  pulse p;
  CHECK_FALSE(p.beats());
  p.begins();
  CHECK(p.beats() == 0);
  CHECK(p.beats() == 0);
  p.scheduler_answered();
  CHECK(p.beats() == 1);
  p.scheduler_answered();
  CHECK(p.beats() == 2);
  p.ends();
  CHECK_FALSE(p.beats());
}

TEST_CASE("in a group a session beats only when both its scheduler and its member work") {
  pulse p;
  p.begins();
  p.member_stepped();
  p.member_stepped();
  CHECK(p.beats() == 0);
  p.scheduler_answered();
  CHECK(p.beats() == 1);
  for (int i = 0; i < 10; ++i) p.scheduler_answered();  // the member hangs from here on
  CHECK(p.beats() == 1);
  p.member_stepped();
  CHECK(p.beats() == 2);
}

TEST_CASE("a session beats without its member once that has ended") {
  pulse p;
  p.begins();
  p.member_stepped();
  p.scheduler_answered();
  p.scheduler_answered();
  CHECK(p.beats() == 1);
  p.member_gone();
  CHECK(p.beats() == 2);
  p.scheduler_answered();
  CHECK(p.beats() == 3);
}
