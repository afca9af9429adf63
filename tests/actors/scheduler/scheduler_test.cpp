// The scheduler actor as a script of messages: leases to workers, uploads to the owner, decisions to the
// supervisor.
#include "actors/scheduler/scheduler.hpp"

#include "actors/caf/caf.hpp"
#include "actors/scheduler/host_losses.hpp"
#include "tests/actors/support/deterministic.hpp"
#include "tests/runtime/schedule/small_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>

using namespace penstock;
using testing::told_worker;

namespace {

constexpr std::uint32_t batch_size = 2;

class stage final : scheduler::scheduler_listener {
 public:
  /// `gate`: the group's gate for uploads.
  explicit stage(std::uint64_t samples = 20, std::shared_ptr<group::hand_over_gate> gate = nullptr,
                 std::shared_ptr<const arena::flight_recorders> flights = nullptr) {
    const auto leases = std::make_shared<scheduler::lease_counts>(4);
    actor = scheduler::spawn_scheduler(world.system, {leases, times, this, std::move(gate), true, std::move(flights)});
    say(protocol::meet{{owner.actor, actor, supervisor.actor, session.actor}});
    auto order =
        std::make_shared<const plan>(plan::create({samples, 7, false, batch_size, false, 0, 1}).value());
    scheduler::open_stream open;
    open.range = {0, order->batches_per_epoch()};
    open.order = std::move(order);
    say(std::move(open));
  }
  ~stage() { say(scheduler::stop_scheduling{}); }

  template <class Message>
  void say(Message message) {
    actors::tell(actor, std::move(message));
    world.deliver();
  }
  void report(worker_ref who, const protocol::load_batch& lease, std::uint32_t rows = batch_size) {
    if (reports->add({who, protocol::batch_loaded{lease.slot, lease.generation, rows, {}, 0}}))
      say(scheduler::leases_reported{reports});
  }
  void deliver(std::uint64_t upload) {
    if (deliveries->add({upload, std::nullopt})) say(scheduler::batches_delivered{deliveries});
  }
  /// Both workers die while loading the first sample.
  void lose_two_workers() {
    for (std::uint32_t i = 1; i <= 2; ++i) {
      told_worker worker;
      const worker_ref who{0, i};
      say(scheduler::worker_joined{who, 1, schedule::worker_kind::loader, worker.link});
      const protocol::load_batch lease = worker.all<protocol::load_batch>().at(0);
      say(scheduler::worker_ended{who, schedule::flight_mark{lease.slot, lease.generation, 0}, "",
                                  "SIGSEGV"});
    }
  }
  std::vector<upload_order> uploads() const {
    std::vector<upload_order> all;
    for (const auto& message : owner.all<gpu_owner::upload_batches>())
      all.insert(all.end(), message.orders.begin(), message.orders.end());
    return all;
  }

  testing::deterministic_system world;
  testing::recorder<gpu_owner::heard> owner{world.system};
  testing::recorder<supervisor::heard> supervisor{world.system};
  testing::recorder<session::heard> session{world.system};
  std::shared_ptr<scheduler::report_queue> reports = std::make_shared<scheduler::report_queue>();
  std::shared_ptr<scheduler::delivery_queue> deliveries = std::make_shared<scheduler::delivery_queue>();
  std::vector<std::uint64_t> failed;
  std::vector<std::uint64_t> quarantined;
  std::vector<stream_position> delivered;
  std::vector<failure> failures;
  int finished = 0;
  hedge_counts hedges;
  std::shared_ptr<batch_times> times = std::make_shared<batch_times>(64);
  scheduler::scheduler_actor actor;

 private:
  void sample_failed(const scheduler::lost_sample& lost) override { failed.push_back(lost.sample); }
  void sample_quarantined(const scheduler::lost_sample& lost) override { quarantined.push_back(lost.sample); }
  void batch_delivered(const schedule::delivery& d, std::uint64_t) override {
    delivered.push_back(d.position);
  }
  void batch_recovered(std::uint64_t, std::uint64_t) override {}
  void epoch_done(const schedule::epoch_account&) override {}
  void counted(std::uint64_t, std::uint64_t, const hedge_counts& now) override { hedges = now; }
  void gave_up(const failure& why) override { failures.push_back(why); }
  void stream_finished(std::uint64_t) override { ++finished; }
  void answered() override {}
};

constexpr worker_ref first{0, 1};
constexpr worker_ref second{1, 1};

}  // namespace

TEST_CASE("a worker gets one lease per slot, and another one when the device has read a slot") {
  stage s;
  told_worker worker;
  s.say(scheduler::worker_joined{first, 2, schedule::worker_kind::loader, worker.link});
  REQUIRE(worker.all<protocol::load_batch>().size() == 2);
  s.report(first, worker.all<protocol::load_batch>()[0]);
  REQUIRE(s.uploads().size() == 1);
  CHECK(s.uploads()[0].samples == std::vector<std::uint64_t>{0, 1});
  CHECK(worker.all<protocol::load_batch>().size() == 2);
  s.say(scheduler::slots_released{{s.uploads()[0].upload}});
  CHECK(worker.all<protocol::load_batch>().size() == 3);
}

TEST_CASE("slots without memory are leased once the session actor has prepared the place") {
  stage s;
  told_worker worker;
  s.say(scheduler::place_prepared{first.worker, 1});
  s.say(scheduler::worker_joined{first, 2, schedule::worker_kind::loader, worker.link});
  CHECK(worker.all<protocol::load_batch>().size() == 1);
  s.report(first, worker.all<protocol::load_batch>().at(0));
  CHECK(s.uploads().empty());
  s.say(scheduler::place_prepared{first.worker, std::nullopt});
  CHECK(worker.all<protocol::load_batch>().size() == 2);
  CHECK(s.uploads().size() == 1);
}

TEST_CASE("a batch goes to an idle host before a busy one") {
  stage s;
  std::array<told_worker, 3> workers;
  s.say(scheduler::pause_stream{true});
  for (std::uint32_t i = 0; i < 3; ++i)
    s.say(scheduler::worker_joined{{i, 1}, 1, schedule::worker_kind::loader, workers[i].link, nullptr, i < 2 ? 7 : 8});
  s.say(scheduler::pause_stream{false});
  std::vector<std::uint64_t> first_samples;
  for (told_worker& worker : workers) first_samples.push_back(worker.all<protocol::load_batch>().at(0).samples.at(0).index);
  CHECK(first_samples == std::vector<std::uint64_t>{0, 2 * batch_size, batch_size});
}

TEST_CASE("a report on a lease that its worker does not hold makes the supervisor fence that worker") {
  stage s;
  told_worker worker;
  s.say(scheduler::worker_joined{first, 1, schedule::worker_kind::loader, worker.link});
  s.report(first, {9, 9, 0, {}});
  const auto fences = s.supervisor.all<supervisor::fence_worker>();
  REQUIRE(fences.size() == 1);
  CHECK(fences[0].who == first);
  CHECK(fences[0].reason.find("slot 9 generation 9") != std::string::npos);
}

TEST_CASE("once the blame for a worker's death is decided, its leases go to another worker") {
  stage s;
  told_worker a;
  told_worker b;
  s.say(scheduler::worker_joined{first, 1, schedule::worker_kind::loader, a.link});
  const protocol::load_batch lease = a.all<protocol::load_batch>().at(0);
  s.say(scheduler::worker_ended{first, schedule::flight_mark{lease.slot, lease.generation, 1}, "cat.jpg",
                                "SIGSEGV"});
  const auto decisions = s.supervisor.all<supervisor::blame_decided>();
  REQUIRE(decisions.size() == 1);
  REQUIRE(decisions[0].decision.blamed);
  CHECK(decisions[0].decision.blamed->sample == 1);
  s.say(scheduler::worker_joined{second, 1, schedule::worker_kind::loader, b.link});
  const auto again = b.all<protocol::load_batch>();
  REQUIRE(again.size() == 1);
  CHECK(again[0].samples.at(1).attempt == 2);
}

TEST_CASE("a sample that was running when its host was lost is blamed from the third loss on") {
  stage s;
  std::vector<bool> blamed;
  std::vector<std::uint32_t> attempts;
  for (std::uint32_t i = 1; i <= 4; ++i) {
    told_worker worker;
    const worker_ref who{0, i};
    s.say(scheduler::worker_joined{who, 1, schedule::worker_kind::loader, worker.link});
    const protocol::load_batch lease = worker.all<protocol::load_batch>().at(0);
    attempts.push_back(lease.samples.at(1).attempt);
    s.say(scheduler::worker_ended{who, schedule::flight_mark{lease.slot, lease.generation, 1}, "cat.jpg", "host", true});
    blamed.push_back(s.supervisor.all<supervisor::blame_decided>().at(i - 1).decision.blamed.has_value());
  }
  CHECK(blamed == std::vector<bool>{false, false, true, true});
  CHECK(attempts == std::vector<std::uint32_t>{1, 1, 1, 2});
  CHECK(s.supervisor.all<supervisor::want_sacrificial>().size() == 1);
}

TEST_CASE("a batch's lost hosts are forgotten when it is delivered") {
  const testing::small_plan plan(12, 2);
  schedule::ledger books({}, plan, {0, 6});
  scheduler::host_losses losses;
  for (std::uint32_t i = 1; i <= 2; ++i) {
    const worker_ref who{0, i};
    books.worker_joined(who, 1);
    const auto lease = std::get<schedule::load_command>(books.advance().at(0)).lease;
    const scheduler::worker_ended end{who, schedule::flight_mark{lease.slot, lease.generation, 0}, "", "host", true};
    CHECK_FALSE(losses.charged(books, end));
    static_cast<void>(books.worker_died(who, std::nullopt, "host"));
  }
  CHECK(losses.size() == 1);
  losses.delivered(1);
  CHECK(losses.size() == 1);
  losses.delivered(0);
  CHECK(losses.size() == 0);
}

TEST_CASE("a sample that has killed twice is tried alone in the sacrificial worker") {
  stage s;
  s.lose_two_workers();
  REQUIRE(s.supervisor.all<supervisor::want_sacrificial>().size() == 1);
  CHECK(s.supervisor.all<supervisor::want_sacrificial>()[0].wanted);
}

TEST_CASE("a quarantined sample is reported as news and to the session actor, which records it") {
  stage s;
  s.lose_two_workers();
  CHECK(s.session.all<session::sample_quarantined>().empty());
  s.say(scheduler::cannot_try_alone{"the sacrificial worker does not start"});
  REQUIRE(s.session.all<session::sample_quarantined>().size() == 1);
  CHECK(s.session.all<session::sample_quarantined>()[0].lost.sample == 0);
  CHECK(s.session.all<session::sample_quarantined>()[0].lost.attempts == 2);
  CHECK(s.quarantined == std::vector<std::uint64_t>{0});
}

TEST_CASE("a draining worker finishes its leases, then gets stop_work, and the supervisor is notified") {
  stage s;
  told_worker worker;
  s.say(scheduler::worker_joined{first, 2, schedule::worker_kind::loader, worker.link});
  const auto leases = worker.all<protocol::load_batch>();
  SECTION("all leases") {
    s.say(scheduler::worker_drains{first, false});
    s.report(first, leases.at(0));
    CHECK(worker.all<protocol::stop_work>().empty());
    s.report(first, leases.at(1));
    CHECK(worker.all<protocol::stop_work>().size() == 1);
  }
  SECTION("only the current batch") {
    s.say(scheduler::worker_drains{first, true});
    CHECK(worker.all<protocol::stop_work>().empty());
    s.report(first, leases.at(0));
    CHECK(worker.all<protocol::stop_work>().size() == 1);
  }
  CHECK(s.supervisor.all<supervisor::worker_told_to_stop>().size() == 1);
  CHECK(worker.all<protocol::load_batch>().size() == 2);
}

TEST_CASE("after the owner is lost, undelivered batches are uploaded again under the new era") {
  stage s;
  told_worker worker;
  s.say(scheduler::worker_joined{first, 2, schedule::worker_kind::loader, worker.link});
  for (const auto& lease : worker.all<protocol::load_batch>()) s.report(first, lease);
  REQUIRE(s.uploads().size() == 2);
  s.say(scheduler::slots_released{{s.uploads()[0].upload}});
  s.deliver(s.uploads()[0].upload);
  CHECK(s.delivered == std::vector<stream_position>{0});
  s.say(scheduler::owner_lost{1, std::nullopt});
  const auto again = s.uploads();
  REQUIRE(again.size() == 3);
  CHECK(again[2].position == 1);
  CHECK(again[2].era == 1);
}

TEST_CASE("a paused stream gives no leases, and its end is reported once") {
  stage s(2);  // one batch
  told_worker worker;
  s.say(scheduler::pause_stream{true});
  s.say(scheduler::worker_joined{first, 1, schedule::worker_kind::loader, worker.link});
  CHECK(worker.all<protocol::load_batch>().empty());
  s.say(scheduler::pause_stream{false});
  s.report(first, worker.all<protocol::load_batch>().at(0));
  s.say(scheduler::slots_released{{s.uploads().at(0).upload}});
  CHECK(s.finished == 0);
  s.deliver(s.uploads()[0].upload);
  CHECK(s.finished == 1);
}

TEST_CASE("in a group no worker gets a lease before all ranks have agreed") {
  const auto gate = std::make_shared<group::hand_over_gate>();
  stage s(20, gate);
  told_worker worker;
  s.say(scheduler::worker_joined{first, 1, schedule::worker_kind::loader, worker.link});
  CHECK(worker.all<protocol::load_batch>().empty());
  REQUIRE(gate->begin());
  s.say(scheduler::gate_moved{});
  CHECK(worker.all<protocol::load_batch>().size() == 1);
}

TEST_CASE("uploads to another process wait at the group's gate, and pass in order up to its limit") {
  const auto gate = std::make_shared<group::hand_over_gate>();
  REQUIRE(gate->begin());
  stage s(20, gate);
  told_worker worker;
  s.say(scheduler::worker_joined{first, 3, schedule::worker_kind::loader, worker.link});
  for (const auto& lease : worker.all<protocol::load_batch>()) s.report(first, lease);
  s.report(first, worker.all<protocol::load_batch>().at(2));
  CHECK(s.uploads().empty());
  CHECK(s.times->find(0)->reached() == batch_stage::loaded);  // the owner does not have the batch yet
  gate->open(s.world.now() + std::chrono::hours(1), 2);
  s.say(scheduler::gate_moved{});
  REQUIRE(s.uploads().size() == 2);
  CHECK(s.uploads()[0].position == 0);
  CHECK(s.uploads()[1].position == 1);
  CHECK(s.times->find(1)->reached() == batch_stage::ordered);
  CHECK(s.times->find(2)->reached() == batch_stage::loaded);
  CHECK(gate->shut() == 2);
}

TEST_CASE("batches that passed the gate pass it again for the next owner, and others pass once") {
  const auto gate = std::make_shared<group::hand_over_gate>();
  REQUIRE(gate->begin());
  gate->open(steady_time::max(), 2);
  stage s(20, gate);
  told_worker worker;
  s.say(scheduler::worker_joined{first, 3, schedule::worker_kind::loader, worker.link});
  for (const auto& lease : worker.all<protocol::load_batch>()) s.report(first, lease);
  s.report(first, worker.all<protocol::load_batch>().at(2));
  REQUIRE(s.uploads().size() == 2);
  s.say(scheduler::owner_lost{1, {}});
  REQUIRE(s.uploads().size() == 4);
  CHECK(s.uploads()[2].position == 0);
  CHECK(s.uploads()[3].position == 1);
  gate->open(steady_time::max(), {});
  s.say(scheduler::gate_moved{});
  REQUIRE(s.uploads().size() == 5);
  CHECK(s.uploads()[4].position == 2);
}

TEST_CASE("a late sample's batch goes to a second worker, urgently, and the first report counts") {
  const auto flights = std::make_shared<arena::flight_recorders>(arena::flight_recorders::create(2).value());
  auto flight = arena::flight_writer::map(flights->fd(), 0).value();
  stage s(40, nullptr, flights);
  told_worker a;
  told_worker b;
  s.say(scheduler::worker_joined{first, 4, schedule::worker_kind::loader, a.link});
  s.say(scheduler::worker_joined{second, 4, schedule::worker_kind::loader, b.link});
  const protocol::load_batch late = a.all<protocol::load_batch>().at(0);
  const protocol::load_batch other = b.all<protocol::load_batch>().at(0);
  protocol::batch_loaded report{other.slot, other.generation, batch_size, {}, 0};
  report.sample_us.assign(1000, 100'000);
  REQUIRE(s.reports->add({second, std::move(report)}));
  s.say(scheduler::leases_reported{s.reports});
  flight.publish({arena::phase::loading, late.slot, 0, late.generation}, "cat.jpg", nanoseconds(0), s.world.now());

  const auto hedge_of = [&]() -> std::optional<protocol::load_batch> {
    for (const protocol::load_batch& lease : b.all<protocol::load_batch>()) {
      if (lease.urgent) return lease;
    }
    return std::nullopt;
  };
  using namespace std::chrono_literals;
  s.world.pass(150ms);
  CHECK_FALSE(hedge_of());
  s.world.pass(350ms);
  const auto hedge = hedge_of();
  REQUIRE(hedge);
  CHECK(hedge->samples.size() == late.samples.size());
  CHECK(hedge->samples[0].index == late.samples[0].index);
  CHECK(s.hedges == hedge_counts{1, 0});
  s.report(second, *hedge);
  CHECK(s.hedges == hedge_counts{1, 1});
  REQUIRE_FALSE(s.uploads().empty());
  CHECK(s.uploads()[0].partition == 1);
  REQUIRE(a.all<protocol::drop_batch>().size() == 1);
  CHECK(a.all<protocol::drop_batch>()[0].generation == late.generation);
  const std::size_t uploads = s.uploads().size();
  s.report(first, late, 0);  // the worker has stopped at once
  CHECK(s.uploads().size() == uploads);
  CHECK(s.supervisor.all<supervisor::fence_worker>().empty());
}

TEST_CASE("without [loader] hedge the scheduler reads no flight recorder") {
  stage s;
  told_worker worker;
  s.say(scheduler::worker_joined{first, 2, schedule::worker_kind::loader, worker.link});
  s.world.pass(std::chrono::seconds(60), std::chrono::seconds(1));
  CHECK(s.hedges == hedge_counts{});
}
