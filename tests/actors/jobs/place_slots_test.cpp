// How arguments get into slots: at once, or copied by other threads.
#include "actors/jobs/place_slots.hpp"

#include "actors/jobs/argument_copiers.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <future>
#include <string>
#include <thread>

using namespace penstock;
using namespace penstock::jobs;

namespace {

constexpr std::uint64_t slot_bytes = 1U << 20U;

std::shared_ptr<job_record> job_with(std::uint64_t number, Argument argument) {
  return std::make_shared<job_record>(number, "echo", std::move(argument), job_rules{},
                                      std::weak_ptr<job_control>());
}

/// A place of two slots, as the scheduler sees it.
struct two_slots {
  [[nodiscard]] arena::job_slot slot(std::uint32_t index) const {
    return arena::job_slot(memory->bytes().subspan(shape.slot_offset(index), shape.slot_bytes));
  }
  [[nodiscard]] std::string argument_in(std::uint32_t index, std::uint32_t row) const {
    const auto found = slot(index).read(row);
    REQUIRE(found);
    const auto bytes = slot(index).bytes(found->argument_offset, found->argument_bytes);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  const arena::geometry shape{slot_bytes, 2, 1};
  std::shared_ptr<mapping> memory = std::make_shared<mapping>(map_anonymous(shape.partition_bytes()));
  place_slots place{memory, shape};
};

lease_ref lease_of(std::uint32_t slot, std::uint32_t generation) {
  return {{0, 1}, slot, generation};
}

}  // namespace

TEST_CASE("small arguments are written at once, but not large ones or those that do not fit the slot") {
  const two_slots there;
  const auto of_bytes = [](std::size_t bytes) { return job_with(1, std::string(bytes, 'a')); };
  for (const auto& [bytes, at_once] : {std::pair<std::size_t, bool>{0, true},
                                       {written_at_once_max, true},
                                       {written_at_once_max + 1, false},
                                       {slot_bytes, false}}) {
    const auto job = of_bytes(bytes);
    const std::array<slot_job, 1> lease{slot_job{job.get()}};
    INFO(bytes);
    CHECK(there.place.written_at_once(lease) == at_once);
  }
}

TEST_CASE("while a lease of a place is being delivered, later leases wait, which keeps their order") {
  two_slots there;
  const auto large = job_with(1, std::string(500'000, 'a'));
  const auto small = job_with(2, std::string("b"));
  const std::array<slot_job, 1> first{slot_job{large.get()}};
  const std::array<slot_job, 1> second{slot_job{small.get()}};
  {
    const argument_delivery delivery = there.place.deliver(lease_of(0, 1), first);
    CHECK(!there.place.written_at_once(second));
  }
  CHECK(there.place.written_at_once(second));
}

TEST_CASE("a lease can be revoked before its arguments arrive, and has its arguments after copy()") {
  two_slots there;
  const auto a = job_with(1, std::string(300'000, 'a'));
  const auto b = job_with(2, std::string(300'001, 'b'));
  const std::array<slot_job, 2> lease{slot_job{a.get()}, slot_job{b.get(), 7, 2}};
  argument_delivery delivery = there.place.deliver(lease_of(1, 3), lease);
  CHECK(there.slot(1).rows(3) == 2U);
  CHECK(there.place.revoke(lease_of(1, 3), 0));
  REQUIRE(delivery.copy(-1));
  CHECK(there.argument_in(1, 0) == std::string(300'000, 'a'));
  CHECK(there.argument_in(1, 1) == std::string(300'001, 'b'));
  CHECK(there.slot(1).read(1)->function == 7);
  CHECK(there.slot(1).read(1)->attempt == 2);
}

TEST_CASE("an argument is kept until copy() has delivered it, even if its job ends meanwhile") {
  two_slots there;
  auto held = std::make_shared<std::string>(500'000, 'x');
  const std::weak_ptr<std::string> watch = held;
  const auto bytes = std::as_bytes(std::span(*held));
  const auto job = job_with(1, Argument::borrowed(bytes, std::move(held)));
  const std::array<slot_job, 1> lease{slot_job{job.get()}};
  argument_delivery delivery = there.place.deliver(lease_of(0, 1), lease);
  job->fail({job_status::cancelled});
  REQUIRE(!watch.expired());
  REQUIRE(delivery.copy(-1));
  CHECK(watch.expired());
  CHECK(there.argument_in(0, 0) == std::string(500'000, 'x'));
}

TEST_CASE("a slot gets no new lease while an argument of an earlier one is copied into it") {
  two_slots there;
  const auto dead = job_with(1, std::string(500'000, 'd'));
  const auto next = job_with(2, std::string(500'000, 'n'));
  const std::array<slot_job, 1> first{slot_job{dead.get()}};
  const std::array<slot_job, 1> second{slot_job{next.get()}};
  auto earlier = std::make_unique<argument_delivery>(there.place.deliver(lease_of(0, 1), first));
  std::promise<void> asked;
  auto later = std::async(std::launch::async, [&] {
    asked.set_value();
    argument_delivery delivery = there.place.deliver(lease_of(0, 2), second);
    return delivery.copy(-1).has_value();
  });
  asked.get_future().wait();
  REQUIRE(earlier->copy(-1));
  CHECK(there.slot(0).rows(1) == 1U);  // the table is still that of the earlier lease
  earlier.reset();
  CHECK(later.get());
  CHECK(there.slot(0).rows(2) == 1U);
  CHECK(there.argument_in(0, 0) == std::string(500'000, 'n'));
}

TEST_CASE("work for one place runs in order, while work for another place runs in parallel") {
  std::vector<int> order;
  {
    std::promise<void> other;  // must outlive the threads
    argument_copiers copiers(2);
    copiers.add(0, [&, done = other.get_future().share()] {
      done.wait();
      order.push_back(1);
    });
    copiers.add(0, [&] { order.push_back(2); });
    copiers.add(1, [&] { other.set_value(); });
    copiers.add(2, [&] { order.push_back(3); });  // runs on the thread of place 0, too
  }
  CHECK(order == std::vector{1, 2, 3});
}
