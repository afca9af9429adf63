// The supervisor actor as a script of messages: what it sends to workers, to the scheduler and to the
// session.
#include "actors/supervisor/supervisor.hpp"

#include "actors/caf/caf.hpp"
#include "tests/actors/support/deterministic.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <algorithm>
#include <csignal>

using namespace penstock;
using namespace std::chrono_literals;
using testing::told_worker;

namespace {

constexpr std::uint32_t places = 4;  // the last one is the sacrificial worker's

struct fake_processes final : supervisor::child_starter<worker_ref> {
  void start(worker_ref who) override { started.push_back(who); }
  void signal(worker_ref who, int number) override { signals.emplace_back(who, number); }
  [[nodiscard]] std::string current_start() const override { return current; }
  std::vector<worker_ref> started;
  std::vector<std::pair<worker_ref, int>> signals;
  std::string current;
};

class stage final : supervisor::supervisor_listener {
 public:
  explicit stage(std::uint32_t workers = 1) {
    supervisor::supervisor_deps deps;
    deps.settings.rules.pool.workers = workers;
    deps.settings.rules.pool.sacrificial_place = places - 1;
    deps.settings.landing_slots = 3;
    deps.settings.config = "the config";
    deps.processes = processes;
    deps.flights = flights;
    deps.leases = leases;
    deps.listener = this;
    actor = supervisor::spawn_supervisor(world.system, std::move(deps));
    say(supervisor::meet_others{scheduler.actor, session.actor});
    say(supervisor::open_pool{});
  }
  ~stage() {
    actors::stop(actor);
    world.deliver();
  }

  template <class Message>
  void say(Message message) {
    actors::tell(actor, std::move(message));
    world.deliver();
  }
  void spawned(worker_ref who, told_worker& worker) {
    say(supervisor::worker_started{who, ::getpid(), worker.link});
  }
  void be_ready(worker_ref who, told_worker& worker) {
    spawned(who, worker);
    get_slots(who, 2);
  }
  void get_slots(worker_ref who, std::uint32_t slots) {
    say(supervisor::worker_spoke{who, protocol::hello{}});
    say(supervisor::worker_spoke{who, protocol::dataset_described{"synthetic", 10, {}, "f"}});
    say(supervisor::partition_prepared{who, protocol::assign_slots{.slots = slots}});
    say(supervisor::worker_spoke{who, protocol::worker_ready{}});
  }
  void exit(worker_ref who, process::exit_report::how how, int code) {
    say(supervisor::worker_exited{who, {::getpid(), how, code, {}}, "last output", {}});
  }

  testing::deterministic_system world;
  testing::recorder<scheduler::heard> scheduler{world.system};
  testing::recorder<session::heard> session{world.system};
  std::shared_ptr<fake_processes> processes = std::make_shared<fake_processes>();
  std::shared_ptr<arena::flight_recorders> flights =
      std::make_shared<arena::flight_recorders>(arena::flight_recorders::create(places).value());
  std::shared_ptr<scheduler::lease_counts> leases = std::make_shared<scheduler::lease_counts>(places);
  std::vector<death_report> deaths;
  std::vector<failure> failures;
  int closed = 0;
  supervisor::supervisor_actor actor;

 private:
  void workers_changed(const std::vector<worker_status>&, bool, std::uint32_t, std::uint32_t) override {}
  void worker_died(const death_report& d) override { deaths.push_back(d); }
  void gave_up(const failure& why) override { failures.push_back(why); }
  void pool_closed() override { ++closed; }
};

constexpr worker_ref first{0, 1};
constexpr auto exited = process::exit_report::how::exited;
constexpr auto signalled = process::exit_report::how::signalled;

}  // namespace

TEST_CASE("a worker gets its dataset, then its slots, and joins the scheduler when it is ready") {
  stage s;
  told_worker worker;
  REQUIRE(s.processes->started == std::vector{first});
  s.be_ready(first, worker);
  CHECK(worker.all<protocol::open_dataset>().at(0).config == "the config");
  CHECK(s.session.all<session::worker_described>().at(0).dataset.type == "synthetic");
  CHECK(worker.all<protocol::assign_slots>().size() == 1);
  REQUIRE(s.scheduler.all<scheduler::worker_joined>().size() == 1);
  CHECK(s.scheduler.all<scheduler::worker_joined>()[0].slots == 2);
}

TEST_CASE("a worker on another machine gets at most as many leases as there are landing slots") {
  for (const std::uint32_t slots : {8U, 2U}) {
    stage s;
    told_worker worker;
    s.say(supervisor::worker_started{.who = first, .pid = ::getpid(), .link = worker.link, .host = 7});
    s.get_slots(first, slots);
    REQUIRE(s.scheduler.all<scheduler::worker_joined>().size() == 1);
    CHECK(s.scheduler.all<scheduler::worker_joined>()[0].slots == std::min(slots, 3U));
    CHECK(s.scheduler.all<scheduler::worker_joined>()[0].host == 7);
  }
}

TEST_CASE("a worker with functions is announced with their names, and gets its slots like any other") {
  stage s;
  told_worker worker;
  s.spawned(first, worker);
  s.say(supervisor::worker_spoke{first, protocol::hello{}});
  s.say(supervisor::worker_spoke{first, protocol::functions_described{{"resize", "thumbnail"}}});
  REQUIRE(s.session.all<session::worker_serves>().size() == 1);
  CHECK(s.session.all<session::worker_serves>()[0].who == first);
  CHECK(s.session.all<session::worker_serves>()[0].functions ==
        std::vector<std::string>{"resize", "thumbnail"});
  s.say(supervisor::partition_prepared{first, protocol::assign_slots{}});
  s.say(supervisor::worker_spoke{first, protocol::worker_ready{}});
  CHECK(s.scheduler.all<scheduler::worker_joined>().size() == 1);
  // A second announcement is a protocol violation.
  s.say(supervisor::worker_spoke{first, protocol::functions_described{}});
  CHECK(s.session.all<session::worker_serves>().size() == 1);
  CHECK(s.processes->signals.at(0) == std::pair(first, SIGKILL));
}

TEST_CASE("a report of finished jobs from a dataset's worker ends that worker") {
  stage s;
  told_worker worker;
  s.be_ready(first, worker);
  s.say(supervisor::worker_spoke{first, protocol::jobs_done{0, 1, 1}});
  CHECK(s.processes->signals.at(0) == std::pair(first, SIGKILL));
}

TEST_CASE("a place is refilled only after the scheduler has decided the blame for the death") {
  stage s;
  told_worker worker;
  s.be_ready(first, worker);
  s.exit(first, signalled, SIGSEGV);
  REQUIRE(s.scheduler.all<scheduler::worker_ended>().size() == 1);
  CHECK(s.scheduler.all<scheduler::worker_ended>()[0].cause == "SIGSEGV");
  CHECK(s.processes->started.size() == 1);
  s.say(supervisor::blame_decided{{first, std::nullopt, 0, 0}});
  s.world.pass(1s);
  CHECK(s.processes->started.back() == worker_ref{0, 2});
  CHECK(s.deaths.at(0).last_output == "last output");
}

TEST_CASE("a worker without heartbeats gets SIGABRT and SIGCONT, and SIGKILL 2 s later") {
  stage s;
  told_worker worker;
  s.be_ready(first, worker);
  s.world.pass(9900ms);
  CHECK(s.processes->signals.empty());
  s.world.pass(1s);
  REQUIRE(s.processes->signals.size() == 2);
  CHECK(s.processes->signals[0] == std::pair(first, SIGABRT));
  CHECK(s.processes->signals[1] == std::pair(first, SIGCONT));
  s.world.pass(2s);
  CHECK(s.processes->signals.back() == std::pair(first, SIGKILL));
}

TEST_CASE("messages of an earlier incarnation are ignored") {
  stage s;
  told_worker worker;
  s.be_ready(first, worker);
  s.say(supervisor::worker_lost_link{{0, 0}, "garbage"});
  s.say(supervisor::worker_spoke{{0, 7}, protocol::worker_ready{}});
  s.world.pass(1s);
  CHECK(s.processes->signals.empty());
}

TEST_CASE("a worker fenced by the scheduler is killed, and its death is reported as a protocol violation") {
  stage s;
  told_worker worker;
  s.be_ready(first, worker);
  s.say(supervisor::fence_worker{first, "it reported slot 9, which matches none of its leases"});
  CHECK(s.processes->signals.at(0) == std::pair(first, SIGKILL));
  s.exit(first, signalled, SIGKILL);
  s.say(supervisor::blame_decided{{first, std::nullopt, 0, 0}});
  CHECK(s.deaths.at(0).cause == death_cause::protocol);
}

TEST_CASE("when the session closes, workers stop, and the supervisor reports once that all have exited") {
  stage s(2);
  told_worker a;
  told_worker b;
  s.be_ready({0, 1}, a);
  s.be_ready({1, 1}, b);
  s.say(supervisor::close_pool{10s});
  CHECK(a.all<protocol::stop_work>().size() == 1);
  CHECK(b.all<protocol::stop_work>().size() == 1);
  for (const worker_ref who : {worker_ref{0, 1}, worker_ref{1, 1}}) {
    CHECK(s.closed == 0);
    s.exit(who, exited, 0);
    s.say(supervisor::blame_decided{{who, std::nullopt, 0, 0}});
  }
  CHECK(s.closed == 1);
  CHECK(s.deaths.empty());
  CHECK(s.processes->started.size() == 2);
}

TEST_CASE(
    "a start that fails because the program is missing ends the run, and any other failed start is retried") {
  stage s;
  s.say(supervisor::start_refused{first, {errc::system, "no descriptors", 24}});
  s.world.pass(1s);
  CHECK(s.processes->started.size() == 2);
  s.say(supervisor::start_refused{{0, 2}, {errc::worker_program, "no such program", 0}});
  CHECK(s.failures.at(0).message == "no such program");
}

TEST_CASE(
    "the sacrificial worker starts when the scheduler requests it, and joins as the sacrificial worker") {
  stage s;
  told_worker alone;
  s.say(supervisor::want_sacrificial{true});
  const worker_ref who{places - 1, 1};
  REQUIRE(s.processes->started.back() == who);
  s.be_ready(who, alone);
  CHECK(s.scheduler.all<scheduler::worker_joined>().back().kind == schedule::worker_kind::sacrificial);
}
