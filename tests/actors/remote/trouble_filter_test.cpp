#include "actors/remote/trouble_filter.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

TEST_CASE("a problem that repeats with each attempt is logged once, and new problems at most once a second") {
  hosts::trouble_filter filter;
  const steady_time start{1h};
  CHECK(filter.is_news("refused", start));
  CHECK_FALSE(filter.is_news("refused", start + 1h));
  CHECK(filter.is_news("lost, port 1", start + 1h));
  int logged = 0;
  for (int i = 0; i < 100; ++i) logged += filter.is_news("lost, port " + std::to_string(i), start + 2h + i * 100ms) ? 1 : 0;
  CHECK(logged == 10);
}

TEST_CASE("a problem that returns after it was solved is logged again, but not within a second") {
  hosts::trouble_filter filter;
  const steady_time start{1h};
  CHECK(filter.is_news("lost", start));
  filter.forget();
  CHECK_FALSE(filter.is_news("lost", start + 999ms));
  CHECK(filter.is_news("lost", start + 1s));
}
