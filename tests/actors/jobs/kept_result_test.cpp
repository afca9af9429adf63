#include "actors/jobs/kept_result.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace penstock;
using namespace penstock::jobs;

namespace {

/// A place of three slots, one result in each.
struct three_slots {
  three_slots() {
    place->memory = std::make_shared<mapping>(map_anonymous(3 * 4096));
    place->slots = 3;
  }
  std::shared_ptr<kept_result> result(std::uint32_t slot) {
    const auto bytes = place->memory->bytes().subspan(4096UL * slot, 1000);
    std::ranges::fill(bytes, static_cast<std::byte>(slot + 1));
    return std::make_shared<kept_result>(slot + 1,
                                         kept_result::in_slot{place, {{0, 1}, slot, 1}, bytes, left}, meter);
  }
  std::shared_ptr<lent_place> place = std::make_shared<lent_place>();
  std::vector<std::uint32_t> gone;  // slots that their results have left
  std::shared_ptr<const slot_left> left =
      std::make_shared<const slot_left>([this](const lease_ref& lease) { gone.push_back(lease.slot); });
  std::shared_ptr<admission> meter = std::make_shared<admission>(10, 1 << 20);
};

}  // namespace

TEST_CASE("a place lends all of its slots but one, and the next result is copied when its bytes are read") {
  three_slots slots;
  const auto a = slots.result(0);
  const auto b = slots.result(1);
  const auto c = slots.result(2);
  CHECK(a->bytes().data() == slots.place->memory->bytes().data());
  CHECK(b->bytes().data() == slots.place->memory->bytes().data() + 4096);
  CHECK(c->bytes().data() != slots.place->memory->bytes().data() + 8192);
  CHECK(c->bytes()[999] == std::byte{3});
  CHECK(slots.gone == std::vector<std::uint32_t>{2});
  CHECK(slots.meter->now().result_bytes == 1000);
}

TEST_CASE("a result can leave its slot unless its bytes were handed out") {
  three_slots slots;
  const auto looked_at = slots.result(0);
  const auto untouched = slots.result(1);
  const auto before = looked_at->bytes();
  CHECK(!looked_at->leave_slot());
  CHECK(untouched->leave_slot());
  CHECK(!untouched->leave_slot());
  CHECK(looked_at->bytes().data() == before.data());
  CHECK(untouched->bytes()[0] == std::byte{2});
  CHECK(slots.gone.empty());
}

TEST_CASE("destroying a result returns its slot, its loan and its memory") {
  three_slots slots;
  auto a = slots.result(0);
  CHECK(!a->bytes().empty());
  CHECK(slots.place->lent == 1);
  a.reset();
  CHECK(slots.place->lent == 0);
  CHECK(slots.gone == std::vector<std::uint32_t>{0});
  auto copied = slots.result(1);
  CHECK(copied->leave_slot());
  CHECK(slots.meter->now().result_bytes == 1000);
  copied.reset();
  CHECK(slots.meter->now().result_bytes == 0);
  CHECK(slots.gone.size() == 1);
}

TEST_CASE("count_as() frees a result's slot or copy and counts the given size instead") {
  three_slots slots;
  auto lent = slots.result(0);
  CHECK(!lent->bytes().empty());
  lent->count_as(5000);
  CHECK(slots.place->lent == 0);
  CHECK(slots.gone == std::vector<std::uint32_t>{0});
  CHECK(slots.meter->now().result_bytes == 5000);
  lent->count_as(10);
  CHECK(slots.meter->now().result_bytes == 10);
  CHECK(lent->bytes().empty());
  CHECK(!lent->leave_slot());
  lent.reset();
  CHECK(slots.meter->now().result_bytes == 0);
  CHECK(slots.gone.size() == 1);
}
