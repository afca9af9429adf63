#include "runtime/group/unknown_peer_tally.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace std::chrono_literals;

TEST_CASE(
    "the first unknown peer of a kind is reported at once, and thousands more in one event every 10 s") {
  unknown_peer_tally tally;
  const steady_time begin{1h};
  CHECK(tally.next() == never);
  tally.note(unknown_peer_kind::garbage, "10.0.0.1:1", "nonsense");
  auto news = tally.news(begin);
  REQUIRE(news.size() == 1);
  CHECK(news[0].count == 1);
  CHECK(news[0].peer == "10.0.0.1:1");
  for (int i = 0; i < 10'000; ++i) {
    tally.note(unknown_peer_kind::garbage, "10.0.0.2:" + std::to_string(i), "more of it");
    CHECK(tally.news(begin + 9999ms).empty());
  }
  tally.note(unknown_peer_kind::wrong_secret, "10.0.0.3:1", "another");
  news = tally.news(begin + 5s);
  REQUIRE(news.size() == 1);
  CHECK(news[0].kind == unknown_peer_kind::wrong_secret);
  CHECK(tally.next() == begin + 10s);
  news = tally.news(begin + 10s);
  REQUIRE(news.size() == 1);
  CHECK(news[0].count == 10'000);
  CHECK(news[0].peer == "10.0.0.2:9999");
  CHECK(tally.next() == never);
  CHECK(tally.news(begin + 1h).empty());
  CHECK(tally.counts()[static_cast<std::size_t>(unknown_peer_kind::garbage)] == 10'001);
}
