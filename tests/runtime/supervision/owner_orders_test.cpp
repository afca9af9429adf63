#include "runtime/supervision/owner_orders.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;

namespace {

upload_order upload(std::uint64_t number, stream_position position, std::uint64_t era = 0) {
  return {number, era, 0, position, 0, position, 0, 0, {position * 10, position * 10 + 1}};
}

owner_orders with_uploads(std::uint64_t count) {
  owner_orders o;
  for (std::uint64_t i = 1; i <= count; ++i) o.order(upload(i, i - 1));
  static_cast<void>(o.take_unsent());
  return o;
}

}  // namespace

TEST_CASE("uploads are sent once, in order, and forgotten when they are delivered") {
  owner_orders o;
  for (std::uint64_t i = 1; i <= 3; ++i) o.order(upload(i, i - 1));
  const auto sent = o.take_unsent();
  REQUIRE(sent.size() == 3);
  CHECK(sent[2].upload == 3);
  CHECK(o.take_unsent().empty());
  for (std::uint64_t i = 1; i <= 3; ++i) {
    CHECK_FALSE(o.copied(i));
    CHECK_FALSE(o.delivered(i));
  }
  CHECK(o.outstanding() == 0);
}

TEST_CASE("copies and deliveries that are unordered, repeated or out of order are violations") {
  owner_orders o = with_uploads(3);
  CHECK(o.copied(9) == "it acknowledged a copy of upload 9, which it was not asked to copy");
  CHECK(o.delivered(1) == "it acknowledged delivery of upload 1, which it has not copied");
  REQUIRE_FALSE(o.copied(1));
  CHECK(o.copied(1).has_value());
  REQUIRE_FALSE(o.copied(2));
  CHECK(o.delivered(2) == "it acknowledged delivery of upload 2 before upload 1");
  CHECK_FALSE(o.delivered(1));
  CHECK(o.delivered(1).has_value());
  o.order(upload(4, 3));
  CHECK(o.copied(4).has_value());  // upload 4 was not sent yet
}

TEST_CASE("a death starts another era, forgets earlier orders, and drops orders of the old era") {
  owner_orders o = with_uploads(2);
  const auto loss = o.lose_owner(suspicion_rule::none, 1);
  CHECK(loss.era == 1);
  CHECK_FALSE(loss.suspect);
  CHECK(o.outstanding() == 0);
  o.order(upload(3, 1, 0));  // from before the scheduler knew of the death
  CHECK_FALSE(o.has_unsent());
  o.order(upload(4, 0, 1));
  CHECK(o.take_unsent().size() == 1);
}

TEST_CASE("a batch in progress at two owners' deaths is proven, and one delivered in between is not") {
  owner_orders o = with_uploads(2);
  auto loss = o.lose_owner(suspicion_rule::in_hand, 2);
  REQUIRE(loss.suspect);
  CHECK(loss.suspect->position == 1);
  CHECK_FALSE(loss.proven);
  o.order(upload(3, 0, 1));
  o.order(upload(4, 1, 1));
  static_cast<void>(o.take_unsent());
  SECTION("twice") {
    CHECK(o.lose_owner(suspicion_rule::in_hand, 4).proven);
  }
  SECTION("delivered in between") {
    for (const std::uint64_t u : {3, 4}) {
      REQUIRE_FALSE(o.copied(u));
      REQUIRE_FALSE(o.delivered(u));
    }
    o.order(upload(5, 1, 1));  // a seek went back to this batch
    static_cast<void>(o.take_unsent());
    CHECK_FALSE(o.lose_owner(suspicion_rule::in_hand, 5).proven);
  }
}

TEST_CASE(
    "after a lost context the oldest unfinished batch is suspected, otherwise only the one in progress") {
  CHECK(with_uploads(3).lose_owner(suspicion_rule::in_hand_or_oldest, std::nullopt).suspect->upload == 1);
  CHECK(with_uploads(3).lose_owner(suspicion_rule::in_hand_or_oldest, 3).suspect->upload == 3);
  CHECK_FALSE(with_uploads(3).lose_owner(suspicion_rule::in_hand, std::nullopt).suspect);
  CHECK_FALSE(owner_orders().lose_owner(suspicion_rule::in_hand_or_oldest, std::nullopt).suspect);
}

TEST_CASE(
    "an owner killed from outside puts no blame on a batch, but its batch, or the next one, is recorded") {
  auto loss = with_uploads(3).lose_owner(suspicion_rule::none, 2);
  REQUIRE(loss.had);
  CHECK(loss.had->upload == 2);
  CHECK_FALSE(loss.suspect);
  loss = with_uploads(3).lose_owner(suspicion_rule::none, std::nullopt);
  REQUIRE(loss.had);
  CHECK(loss.had->upload == 1);
  owner_orders idle = with_uploads(1);
  REQUIRE_FALSE(idle.copied(1));
  REQUIRE_FALSE(idle.delivered(1));
  loss = idle.lose_owner(suspicion_rule::none, std::nullopt);
  REQUIRE(loss.had);
  CHECK(loss.had->upload == 1);
  CHECK_FALSE(idle.lose_owner(suspicion_rule::none, std::nullopt).had);
  CHECK_FALSE(owner_orders().lose_owner(suspicion_rule::none, std::nullopt).had);
  owner_orders unsent;
  unsent.order(upload(1, 0));
  CHECK_FALSE(unsent.lose_owner(suspicion_rule::none, std::nullopt).had);
}

TEST_CASE("a batch is named with its first eight samples") {
  upload_order batch = upload(1, 17);
  CHECK(describe(batch) == "batch 17 of epoch 0 (samples 170, 171)");
  batch.samples.assign(130, 7);
  CHECK(describe(batch) == "batch 17 of epoch 0 (samples 7, 7, 7, 7, 7, 7, 7, 7 and 122 more)");
}
