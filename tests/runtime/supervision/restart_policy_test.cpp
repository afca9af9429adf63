#include "runtime/supervision/restart_policy.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;

namespace {

using act = restart_decision::what;

constexpr death crash{death::how::abnormal, false, false};
constexpr death fruitful_crash{death::how::abnormal, false, true};
constexpr death blamed_crash{death::how::abnormal, true, false};
constexpr death normal_end{death::how::normal, false, true};
constexpr death would_repeat{death::how::no_restart, false, false};
constexpr death shot_from_outside{death::how::abnormal, false, false, true};
constexpr death operated{death::how::operated, false, false};

const steady_time start{};

restart_policy policy_of(restart_type type) {
  restart_settings settings;
  settings.type = type;
  return {settings, 1};
}

}  // namespace

TEST_CASE("each restart type treats each kind of end as in the table") {
  struct row {
    restart_type type;
    death end;
    act expected;
  };
  for (const row& r : {row{restart_type::permanent, normal_end, act::restart},
                       {restart_type::permanent, crash, act::restart},
                       {restart_type::permanent, would_repeat, act::fail},
                       {restart_type::transient, normal_end, act::stop},
                       {restart_type::transient, crash, act::restart},
                       {restart_type::transient, would_repeat, act::fail},
                       {restart_type::temporary, normal_end, act::stop},
                       {restart_type::temporary, crash, act::stop},
                       {restart_type::temporary, would_repeat, act::stop}}) {
    CAPTURE(static_cast<int>(r.type), static_cast<int>(r.end.ending));
    CHECK(policy_of(r.type).child_died(start, r.end).act == r.expected);
  }
}

TEST_CASE("a worker that made progress is always restarted at once") {
  auto policy = policy_of(restart_type::permanent);
  for (int i = 0; i < 1000; ++i) {
    const auto next = policy.child_died(start, fruitful_crash);
    CHECK(next.act == act::restart);
    CHECK(next.at == start);
  }
}

TEST_CASE("deaths that are blamed on a sample do not count against the worker") {
  auto policy = policy_of(restart_type::permanent);
  for (int i = 0; i < 100; ++i) CHECK(policy.child_died(start, blamed_crash).at == start);
}

TEST_CASE(
    "after deaths without progress the backoff grows to its limit, with jitter between half and all of it") {
  restart_settings settings;
  settings.intensity_max = 1000;
  restart_policy policy(settings, 42);
  CHECK(policy.child_died(start, crash).at == start);
  nanoseconds whole = 200ms;
  for (int i = 0; i < 12; ++i) {
    const auto wait = policy.child_died(start, crash).at - start;
    CHECK(wait >= whole / 2);
    CHECK(wait <= whole);
    whole = std::min<nanoseconds>(whole * 2, 30s);
  }
}

TEST_CASE("the jitter is the same for the same seed and differs for another one") {
  restart_policy a({}, 7);
  restart_policy b({}, 7);
  restart_policy c({}, 8);
  bool differs = false;
  for (int i = 0; i < 4; ++i) {
    const auto wait = a.child_died(start, crash).at;
    CHECK(wait == b.child_died(start, crash).at);
    differs |= wait != c.child_died(start, crash).at;
  }
  CHECK(differs);
}

TEST_CASE("a place is given up when more counted deaths occur within the period than the intensity allows") {
  auto policy = policy_of(restart_type::permanent);
  for (int i = 0; i < 5; ++i) CHECK(policy.child_died(start + i * 10s, crash).act == act::restart);
  CHECK(policy.child_died(start + 50s, crash).act == act::fail);
}

TEST_CASE("a place is never given up for counted deaths that are far enough apart") {
  auto policy = policy_of(restart_type::permanent);
  for (int i = 0; i < 100; ++i) CHECK(policy.child_died(start + i * 13s, crash).act == act::restart);
}

TEST_CASE("a death after progress resets the backoff") {
  auto policy = policy_of(restart_type::permanent);
  policy.child_died(start, crash);
  policy.child_died(start, crash);
  policy.child_died(start, fruitful_crash);
  CHECK(policy.child_died(start, crash).at == start);
}

TEST_CASE("a worker that lived long starts with a clean history") {
  auto policy = policy_of(restart_type::permanent);
  for (int i = 0; i < 5; ++i) policy.child_died(start, crash);
  policy.child_ready(start);
  CHECK(policy.child_died(start + 60s, crash).act == act::restart);
}

TEST_CASE("an operator's orders never count, and they clear the history") {
  auto policy = policy_of(restart_type::permanent);
  for (int i = 0; i < 5; ++i) policy.child_died(start, crash);
  CHECK(policy.child_died(start, operated).at == start);
  for (int i = 0; i < 5; ++i) CHECK(policy.child_died(start, crash).act == act::restart);
  CHECK(policy.child_died(start, crash).act == act::fail);
}

TEST_CASE("a place is never given up because of kills from outside, but waits longer after each") {
  auto policy = policy_of(restart_type::permanent);
  CHECK(policy.child_died(start, shot_from_outside).at == start);
  nanoseconds whole = 200ms;
  for (int i = 0; i < 1000; ++i) {
    const auto next = policy.child_died(start, shot_from_outside);
    CHECK(next.act == act::restart);
    CHECK(next.at - start >= whole / 2);
    CHECK(next.at - start <= whole);
    whole = std::min<nanoseconds>(whole * 2, 30s);
  }
}

TEST_CASE("kills from outside between crashes neither count nor hide the crashes") {
  auto policy = policy_of(restart_type::permanent);
  for (int i = 0; i < 5; ++i) {
    CHECK(policy.child_died(start, crash).act == act::restart);
    for (int k = 0; k < 3; ++k) CHECK(policy.child_died(start, shot_from_outside).act == act::restart);
  }
  CHECK(policy.child_died(start, crash).act == act::fail);
}

TEST_CASE("a kill from outside that hits a child that made progress restarts it at once") {
  auto policy = policy_of(restart_type::permanent);
  policy.child_died(start, crash);
  policy.child_died(start, crash);
  CHECK(policy.child_died(start, {death::how::abnormal, false, true, true}).at == start);
  CHECK(policy.child_died(start, shot_from_outside).at == start);
}

TEST_CASE("the restart type decides after a kill from outside as after any abnormal end") {
  CHECK(policy_of(restart_type::transient).child_died(start, shot_from_outside).act == act::restart);
  CHECK(policy_of(restart_type::temporary).child_died(start, shot_from_outside).act == act::stop);
}

TEST_CASE("a failed start backs off and counts, whatever the restart type") {
  for (const restart_type type :
       {restart_type::permanent, restart_type::transient, restart_type::temporary}) {
    auto policy = policy_of(type);
    CHECK(policy.start_failed(start).at == start);
    for (int i = 1; i < 5; ++i) {
      const auto next = policy.start_failed(start);
      CHECK(next.act == act::restart);
      CHECK(next.at > start);
    }
    CHECK(policy.start_failed(start).act == act::fail);
  }
}
