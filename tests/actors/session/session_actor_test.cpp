// The session actor gives workers their first slots before it has allocated the memory of all slots.
#include "actors/session/session_actor.hpp"
#include "actors/protocol/tensors.hpp"
#include "tests/actors/support/deterministic.hpp"

#include <catch2/catch_test_macros.hpp>

#include <future>
#include <memory>
#include <optional>
#include <vector>

using namespace penstock;

namespace {

/// Two workers describe themselves before the session actor has handled the first description.
class stage final : session::stream_listener {
 public:
  stage(std::uint32_t slots, std::uint32_t mebibytes_a_slot) {
    session::session_deps deps;
    deps.settings.dataset.type = dataset_type::custom;
    deps.settings.sampler.batch_size = 1;
    deps.settings.loader.slots_per_worker = slots;
    deps.workers_wanted = [] { return 2U; };
    deps.partitions = 3;
    deps.order = sampling{};
    deps.memory = memory;
    deps.listener = this;
    const auto actor = session::spawn_session(system_, std::move(deps));
    actors::tell(actor, protocol::meet{{owner.actor, scheduler.actor, supervisor.actor, actor}});
    const std::vector<tensor_spec> tensors{{.name = "x", .type = dtype::uint8, .shape = {mebibytes_a_slot << 20U}}};
    const protocol::dataset_described numbers{"numbers", 100, protocol::as_wire(tensors), "ab12"};
    for (const std::uint32_t w : {0U, 1U}) actors::tell(actor, session::worker_described{{w, 1}, numbers});
    both_described_.set_value();
    attached = owner.all<gpu_owner::attach_partition>(2);
    actors::tell(actor, session::leave{});
  }

 private:
  actors::actor_system system_{1, protocol::local_messages};

 public:
  testing::recorder<gpu_owner::heard> owner{system_};
  testing::recorder<scheduler::heard> scheduler{system_};
  testing::recorder<supervisor::heard> supervisor{system_};
  std::shared_ptr<arena::arena> memory = std::make_shared<arena::arena>(arena::arena::create().value());
  std::vector<gpu_owner::attach_partition> attached;

 private:
  void planned(std::uint64_t, std::shared_ptr<const plan>, std::shared_ptr<const device::transfer_plan>, schedule::stream_range,
               const std::string&, std::uint32_t) override {
    both_described_.get_future().wait();
  }
  void quarantine_known(const std::vector<quarantine_report>&) override {}
  void gave_up(const failure&) override {}

  std::promise<void> both_described_;
};

struct prepared {
  std::uint32_t worker = 0;
  std::optional<std::uint32_t> slots;
  bool operator==(const prepared&) const = default;
};

std::vector<prepared> told_to_scheduler(const stage& s, std::size_t count) {
  std::vector<prepared> all;
  for (const auto& one : s.scheduler.all<scheduler::place_prepared>(count)) all.push_back({one.worker, one.slots});
  return all;
}

}  // namespace

TEST_CASE("all workers get slots before the first of them has memory for all of its slots") {
  const stage s(10, 4);
  CHECK(told_to_scheduler(s, 4) == std::vector<prepared>{{0, 3}, {1, 3}, {0, std::nullopt}, {1, std::nullopt}});
  const auto given = s.supervisor.all<supervisor::partition_prepared>(2);
  REQUIRE(given.size() == 2);
  for (const auto& one : given) CHECK(one.slots.value().slots == 10);
  REQUIRE(s.attached.size() == 2);
  for (const auto& one : s.attached) CHECK(one.memory->bytes().size() == s.memory->shape().partition_bytes());
}

TEST_CASE("a worker with few slots gets the memory of all of them at once") {
  const stage s(3, 4);
  CHECK(s.attached.size() == 2);
  CHECK(s.supervisor.all<supervisor::partition_prepared>(2).size() == 2);
  CHECK(told_to_scheduler(s, 0).empty());
}
