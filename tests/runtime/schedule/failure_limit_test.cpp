#include "runtime/schedule/failure_limit.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;

namespace {

epoch_account with_failures(std::uint64_t failed, std::uint64_t expected) {
  epoch_account a;
  a.epoch = 3;
  a.failed = failed;
  a.expected = expected;
  return a;
}

}  // namespace

TEST_CASE("32 failures in an epoch are always allowed, and more only up to the fraction of its samples") {
  const failure_limit half(0.5);
  CHECK_FALSE(half.check(with_failures(32, 32)));
  CHECK(half.check(with_failures(33, 33)));
  CHECK_FALSE(half.check(with_failures(500, 1000)));
  CHECK(half.check(with_failures(501, 1000)));
  CHECK_FALSE(failure_limit(0).check(with_failures(32, 1000)));
  CHECK(failure_limit(0).check(with_failures(33, 1000)));
  CHECK_FALSE(failure_limit(1).check(with_failures(1000, 1000)));
}

TEST_CASE("when a run fails, the most frequent reason is named, whatever the samples are called") {
  failure_limit limit(0.5);
  for (int i = 0; i < 20; ++i) {
    const std::string name = "a/" + std::to_string(i) + ".jpg";
    limit.note(name, "opening '" + name + "': Permission denied");
  }
  for (int i = 0; i < 13; ++i) limit.note("", "not a JPEG");
  const auto no = limit.check(with_failures(33, 40));
  REQUIRE(no);
  CHECK(no->code == errc::dataset);
  CHECK(
      no->message ==
      "33 of the 40 samples of epoch 3 have failed, more than [loader] max_failed_fraction = 0.5 allows; the "
      "most frequent reason (20 of 33 failures so far): opening '...': Permission denied");
}

TEST_CASE("the first reasons_max different reasons are counted separately, and later ones together") {
  failure_limit limit(0);
  for (std::size_t i = 0; i < 1000; ++i) limit.note("", "reason " + std::string(i, 'x'));
  CHECK(limit.note("", "reason xx") == 2);
  CHECK(limit.note("", "one more") == 1000 - failure_limit::reasons_max + 1);
  const auto no = limit.check(with_failures(1000, 1000));
  REQUIRE(no);
  CHECK(no->message.ends_with("(2 of 1002 failures so far): reason xx"));
}

TEST_CASE("reasons that differ only in their numbers count as one, and the first is shown") {
  failure_limit limit(0);
  for (int i = 95; i < 1000; ++i) limit.note("", "token " + std::to_string(i) + " has the id 70000");
  const auto no = limit.check(with_failures(905, 1000));
  REQUIRE(no);
  CHECK(no->message.ends_with("(905 of 905 failures so far): token 95 has the id 70000"));
}

TEST_CASE("a resumed epoch with earlier failures is reported without their unknown reason") {
  const auto no = failure_limit(0.5).check(with_failures(33, 40));
  REQUIRE(no);
  CHECK(no->message.ends_with("allows"));
}
