// The keeper of the GPU owner's process as a script of messages.
#include "actors/supervisor/owner_keeper.hpp"

#include "actors/caf/caf.hpp"
#include "tests/actors/support/deterministic.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <csignal>

using namespace penstock;
using namespace std::chrono_literals;
using testing::told_owner;

namespace {

struct fake_process final : supervisor::child_starter<std::uint32_t> {
  void start(std::uint32_t incarnation) override { started.push_back(incarnation); }
  void signal(std::uint32_t, int number) override { signals.push_back(number); }
  [[nodiscard]] std::string current_start() const override { return current; }
  std::vector<std::uint32_t> started;
  std::vector<int> signals;
  std::string current;
};

class stage final : supervisor::keeper_listener, supervisor::job_upload_listener {
 public:
  enum class of { stream, pool };
  explicit stage(of what = of::stream) {
    supervisor::keeper_deps deps;
    if (what == of::pool) deps.jobs = this;
    deps.process = process;
    deps.deliveries = deliveries;
    deps.flights = flights;
    deps.listener = this;
    actor = supervisor::spawn_owner_keeper(world.system, std::move(deps));
    say(protocol::meet{{{}, scheduler.actor, {}, {}}});
    say(gpu_owner::open_device{});
  }
  ~stage() { say(gpu_owner::close_device{}); }

  template <class Message>
  void say(Message message) {
    actors::tell(actor, std::move(message));
    world.deliver();
  }
  void be_ready(std::uint32_t incarnation, told_owner& owner) {
    say(supervisor::owner_started{incarnation, ::getpid(), owner.link});
    say(supervisor::owner_spoke{incarnation, protocol::hello{}});
    say(supervisor::owner_spoke{incarnation, protocol::owner_opened{"host", "a host", ""}});
  }
  void order(std::uint64_t uploads, std::size_t samples, std::uint64_t era = 0, std::uint64_t from = 1) {
    gpu_owner::upload_batches all;
    for (std::uint64_t i = 0; i < uploads; ++i) {
      all.orders.push_back({from + i, era, 0, i, 0, i, 0, 0, std::vector<std::uint64_t>(samples, i)});
    }
    say(std::move(all));
  }

  void order_job(std::uint64_t upload, std::uint64_t job, std::uint64_t era = 0) {
    upload_order order{upload, era, 0, job, 0, 0, 1, 2, {job}};
    order.job = job_upload{64, 1000, 1, false, "thumbnail"};
    say(gpu_owner::upload_batches{{order}});
  }

  testing::deterministic_system world;
  testing::recorder<scheduler::heard> scheduler{world.system};
  std::shared_ptr<arena::flight_recorders> flights =
      std::make_shared<arena::flight_recorders>(arena::flight_recorders::create(1).value());
  std::shared_ptr<fake_process> process = std::make_shared<fake_process>();
  std::shared_ptr<scheduler::delivery_queue> deliveries = std::make_shared<scheduler::delivery_queue>();
  std::vector<owner_death_report> deaths;
  std::vector<failure> failures;
  int times_opened = 0;
  int times_reopened = 0;
  std::vector<gpu_owner::attached_partition> attachments;
  int closed = 0;
  nanoseconds waited{0};  // how long its sink has waited for batches
  bool waits = false;
  std::vector<jobs::device_answer> answers;
  std::vector<jobs::device_lost> losses;
  supervisor::owner_keeper_actor actor;

 private:
  void jobs_answered(std::vector<jobs::device_answer> some) override {
    for (jobs::device_answer& one : some) answers.push_back(std::move(one));
  }
  void uploads_lost(jobs::device_lost loss) override { losses.push_back(std::move(loss)); }
  void opened(const device::identity&) override { ++times_opened; }
  void reopened(pid_t) override { ++times_reopened; }
  void owner_changed(const supervisor::owner_facts&) override {}
  void owner_died(const owner_death_report& d) override { deaths.push_back(d); }
  void owner_recovered(std::uint32_t, double) override {}
  void progressed(std::uint64_t, std::uint64_t, bool) override {}
  void attached(const gpu_owner::attached_partition& what) override { attachments.push_back(what); }
  void owner_waited(nanoseconds in_all, std::optional<steady_time> waits_at) override {
    waited = in_all;
    waits = waits_at.has_value();
  }
  void gpu_processes_seen(std::vector<gpu_process>) override {}
  void gave_up(const failure& why) override { failures.push_back(why); }
  void owner_closed() override { ++closed; }
};

}  // namespace

TEST_CASE("an owner first gets the config, then its partitions, then the uploads") {
  stage s;
  told_owner owner;
  s.say(gpu_owner::attach_partition{3, nullptr, {}});
  s.order(2, 4);
  s.be_ready(1, owner);
  const auto& told = owner.told();
  REQUIRE(told.size() == 3);
  CHECK(std::holds_alternative<protocol::open_owner>(told[0]));
  CHECK(std::get<protocol::map_partition>(told[1]).partition == 3);
  CHECK(std::get<protocol::upload_slots>(told[2]).uploads.size() == 2);
  CHECK(s.times_opened == 1);
}

TEST_CASE("the sink's waits count while they last, and so do those of dead owners") {
  stage s;
  told_owner first;
  s.be_ready(1, first);
  auto page = arena::flight_writer::map(s.flights->fd(), 0);
  REQUIRE(page);
  const auto now = [&] { return s.world.now(); };
  s.world.pass(1s);
  page->wait_begins(now());
  s.world.pass(2s);
  CHECK(s.waits);
  CHECK(s.waited > 1500ms);
  CHECK(s.waited <= 2s);
  page->wait_ends(now());
  s.world.pass(1s);
  CHECK_FALSE(s.waits);
  CHECK(s.waited == 2s);
  page->wait_begins(now());
  s.world.pass(500ms);
  s.say(supervisor::owner_exited{1, {::getpid(), process::exit_report::how::signalled, SIGKILL, {}}, ""});
  CHECK_FALSE(s.waits);
  CHECK(s.waited == 2500ms);
  s.world.pass(1s);
  CHECK(s.waited == 2500ms);
  told_owner second;
  s.be_ready(2, second);
  page->wait_begins(now());
  s.world.pass(1s);
  page->wait_ends(now());
  s.world.pass(1s);
  CHECK(s.waited == 3500ms);
}

TEST_CASE("uploads of more than a frame are split, for the first owner and for each replacement") {
  stage s;
  const auto uploads_told = [](told_owner& owner) {
    std::size_t count = 0;
    for (const protocol::upload_slots& part : owner.all<protocol::upload_slots>())
      count += part.uploads.size();
    return count;
  };
  told_owner first;
  s.be_ready(1, first);
  s.order(20, 65536);  // 10.5 MB
  CHECK(uploads_told(first) == 20);
  CHECK(first.all<protocol::upload_slots>().size() == 3);
  s.say(supervisor::owner_exited{1, {::getpid(), process::exit_report::how::signalled, SIGKILL, {}}, ""});
  CHECK(s.scheduler.all<scheduler::owner_lost>().at(0).era == 1);
  s.order(20, 65536, 1, 100);
  s.world.pass(1s);
  REQUIRE(s.process->started == std::vector<std::uint32_t>{1, 2});
  told_owner second;
  s.be_ready(2, second);
  CHECK(uploads_told(second) == 20);
  CHECK(s.times_reopened == 1);
}

TEST_CASE("acknowledgements reach the scheduler in order; one out of order fences the owner instead") {
  stage s;
  told_owner owner;
  s.be_ready(1, owner);
  s.order(3, 4);
  s.say(supervisor::owner_spoke{1, protocol::slots_copied{{1, 2, 3}}});
  CHECK(s.scheduler.all<scheduler::slots_released>().at(0).uploads.size() == 3);
  protocol::batches_delivered news;
  news.deliveries = {{1, 7}, {3, 9}};
  s.say(supervisor::owner_spoke{1, news});
  CHECK(s.deliveries->take().size() == 1);
  CHECK(s.process->signals == std::vector{SIGKILL});
  CHECK(s.failures.empty());
}

TEST_CASE("batches acknowledged in one message keep the times at which the sink took them") {
  stage s;
  told_owner owner;
  s.be_ready(1, owner);
  s.order(3, 4);
  s.say(supervisor::owner_spoke{1, protocol::slots_copied{{1, 2, 3}}});
  s.world.pass(3s);
  const steady_time now = s.world.now();
  const auto delivery = [](std::uint64_t upload, steady_time released) {
    protocol::wire_delivery one{upload};
    one.released_ns = nanoseconds(released.time_since_epoch()).count();
    return one;
  };
  protocol::batches_delivered news;
  news.deliveries = {delivery(1, now - 2s), delivery(2, now - 1s), delivery(3, now + 1h)};
  s.say(supervisor::owner_spoke{1, news});
  const auto taken = s.deliveries->take();
  REQUIRE(taken.size() == 3);
  CHECK(taken[0].taken == now - 2s);
  CHECK(taken[1].taken == now - 1s);
  CHECK(taken[2].taken == now);  // a sink cannot take a batch later than it reports it
}

TEST_CASE("after a complete stream is closed, the owner finishes, and the keeper reports its exit") {
  stage s;
  told_owner owner;
  s.be_ready(1, owner);
  gpu_owner::close_device order;
  order.whole = true;
  order.leave = false;
  s.say(order);
  CHECK(owner.all<protocol::stop_owner>().at(0).whole);
  CHECK(s.closed == 0);
  s.say(supervisor::owner_exited{1, {::getpid(), process::exit_report::how::exited, 0, {}}, ""});
  CHECK(s.closed == 1);
  CHECK(s.deaths.empty());
}

TEST_CASE("in a pool the owner gets job results, and its answers reach the pool in order") {
  stage s(stage::of::pool);
  told_owner owner;
  s.be_ready(1, owner);
  CHECK(owner.all<protocol::open_owner>().at(0).pool);
  s.order_job(1, 7);
  s.order_job(2, 8);
  const auto told = owner.all<protocol::upload_jobs>();
  REQUIRE(told.size() == 2);
  const protocol::wire_job_upload& first = told[0].uploads.at(0);
  CHECK(first.job == 7);
  CHECK(first.offset == 64);
  CHECK(first.bytes == 1000);
  CHECK(first.program == 1);
  CHECK(first.function == "thumbnail");
  s.say(supervisor::owner_spoke{1, protocol::slots_copied{{1, 2}}});
  protocol::jobs_answered news;
  news.answers = {{1, 0, "", "made"}, {2, 2, "too much", ""}};
  s.say(supervisor::owner_spoke{1, news});
  REQUIRE(s.answers.size() == 2);
  CHECK(s.answers[0].bytes.size() == 4);
  CHECK(s.answers[1].how == jobs::device_answer::kind::too_large);
  CHECK(s.answers[1].text == "too much");
  CHECK(s.scheduler.all<scheduler::slots_released>().empty());
}

TEST_CASE("an impossible answer for a job fences the owner") {
  stage s(stage::of::pool);
  told_owner owner;
  s.be_ready(1, owner);
  s.order_job(1, 7);
  protocol::jobs_answered news;
  news.answers = {{1, 0, "", "made before it was copied"}};
  s.say(supervisor::owner_spoke{1, news});
  CHECK(s.answers.empty());
  CHECK(s.process->signals == std::vector{SIGKILL});
}

TEST_CASE("a job that kills two owners is reported to the pool with both deaths, and the pool continues") {
  stage s(stage::of::pool);
  for (std::uint32_t incarnation = 1; incarnation <= 2; ++incarnation) {
    told_owner owner;
    s.be_ready(incarnation, owner);
    s.order_job(incarnation, 7, incarnation - 1);
    arena::flight_writer::map(s.flights->fd(), 0)
        .value()
        .publish({arena::phase::loading, 0, 0, incarnation}, "");
    s.say(supervisor::owner_exited{
        incarnation, {::getpid(), process::exit_report::how::signalled, SIGSEGV, {}}, ""});
    REQUIRE(s.losses.size() == incarnation);
    const jobs::device_lost& loss = s.losses.back();
    CHECK(loss.era == incarnation);
    REQUIRE(loss.blamed);
    CHECK(loss.blamed->job == 7);
    CHECK(loss.blamed->cause.find("SIGSEGV") != std::string::npos);
    CHECK(loss.blamed->poisons == (incarnation == 2));
    s.world.pass(1s);
  }
  CHECK(s.failures.empty());
  CHECK(s.process->started.size() == 3);
}

TEST_CASE("the owner's report on page-locking is forwarded") {
  stage keeper;
  told_owner owner;
  keeper.be_ready(1, owner);
  keeper.say(supervisor::owner_spoke{1, protocol::partition_attached{3, 4096, true, 1'500'000}});
  REQUIRE(keeper.attachments.size() == 1);
  CHECK(keeper.attachments[0].partition == 3);
  CHECK(keeper.attachments[0].bytes == 4096);
  CHECK(keeper.attachments[0].pinned);
  CHECK(keeper.attachments[0].took == std::chrono::microseconds(1500));
}
