// Detection of stalls. The test sets the clock.
#include "runtime/supervision/progress_watch.hpp"

#include "tests/runtime/supervision/progress_facts.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

using news = progress_watch::news;
const steady_time start = steady_time{} + 1h;

/// The worker is loading the batch in slot 0, and has finished this many rows of it.
void has_finished(progress_facts& f, std::uint32_t rows, std::uint32_t worker = 0) {
  f.loading[worker] = {0, rows, start};
}

}  // namespace

TEST_CASE("a stall is reported once, with its age at every poll, and so is its end") {
  progress_watch watch;
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::begun)};
  watch.look(start, f);
  CHECK(watch.look(start + 5s, f) == news::stalled);
  CHECK(watch.look(start + 6s, f) == news::none);
  CHECK(watch.stalled()->seconds == 6);
  has_finished(f, 1);
  CHECK(watch.look(start + 7s, f) == news::moves_again);
  CHECK_FALSE(watch.stalled());
  CHECK(watch.look(start + 8s, f) == news::none);
}

TEST_CASE("between two checks, a stall is told as the facts of that moment have it") {
  progress_watch watch;
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::begun)};
  watch.look(start, f);
  watch.look(start + 5s, f);
  const auto later = watch.stalled_at(start + 5900ms, f);
  REQUIRE(later);
  CHECK(later->seconds == 5.9);
  has_finished(f, 1);
  CHECK_FALSE(watch.stalled_at(start + 5900ms, f));
  CHECK(watch.stalled());  // the next check reports the end
  CHECK(watch.look(start + 6s, f) == news::moves_again);
}

TEST_CASE("a stall that ends because no batch is due any longer is not reported as progress") {
  progress_watch watch;
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::begun)};
  watch.look(start, f);
  CHECK(watch.look(start + 5s, f) == news::stalled);
  f.status.outcome = run_outcome::stopped;
  CHECK(watch.look(start + 6s, f) == news::none);
  CHECK_FALSE(watch.stalled());
}

TEST_CASE("a finished sample and a batch that passes a stage are progress, and a restart is not") {
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::leased)};
  progress_watch watch;
  watch.look(start, f);
  SECTION("a sample") {
    has_finished(f, 1);
    CHECK(watch.look(start + 5s, f) == news::none);
  }
  SECTION("a stage") {
    f.under_way[0] = batch_at(0, batch_stage::loaded);
    CHECK(watch.look(start + 5s, f) == news::none);
  }
  SECTION("a batch that was released") {
    f.under_way.clear();
    f.released = 1;
    CHECK(watch.look(start + 5s, f) == news::none);
  }
  SECTION("another incarnation") {
    f.status.workers[0].incarnation = 2;
    CHECK(watch.look(start + 5s, f) == news::stalled);
  }
  SECTION("a sample of a batch in another slot") {
    f.loading[0] = {1, 7, start};
    CHECK(watch.look(start + 5s, f) == news::stalled);
  }
  SECTION("another lease") {
    f.under_way.push_back(batch_at(1, batch_stage::leased, 1));
    CHECK(watch.look(start + 5s, f) == news::stalled);
  }
}

TEST_CASE(
    "samples that a replaced worker loads again are progress only once a batch passes a stage or advances further than before") {
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::begun)};
  progress_watch watch;
  watch.look(start, f);
  has_finished(f, 7);
  CHECK(watch.look(start + 4s, f) == news::none);
  const auto replaced_after = [&](std::uint32_t samples) {
    ++f.status.workers[0].incarnation;
    has_finished(f, samples);
  };
  replaced_after(3);
  CHECK(watch.look(start + 8s, f) == news::none);
  replaced_after(7);
  CHECK(watch.look(start + 9s, f) == news::stalled);
  SECTION("further") {
    replaced_after(8);
    CHECK(watch.look(start + 10s, f) == news::moves_again);
  }
  SECTION("a stage") {
    f.under_way[0] = batch_at(0, batch_stage::loaded);
    CHECK(watch.look(start + 10s, f) == news::moves_again);
    f.under_way.push_back(batch_at(1, batch_stage::begun));
    has_finished(f, 8);
    CHECK(watch.look(start + 14s, f) == news::none);
    replaced_after(9);
    CHECK(watch.look(start + 18s, f) == news::none);
  }
}

TEST_CASE("a stall keeps its beginning while workers hang on the same sample one after the other, whatever else they load in between") {
  progress_watch watch;
  progress_facts f = asking();
  f.status.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::ready), worker_in(sacrificial, child_state::stopped)};
  f.under_way = {batch_at(4, batch_stage::leased, 1), batch_at(5, batch_stage::loaded, 0), batch_at(6, batch_stage::leased, 1)};
  f.under_way[2].slot = 1;
  has_finished(f, 13, 1);
  watch.look(start, f);
  CHECK(watch.look(start + 5s, f) == news::stalled);
  // worker/1 is killed. worker/0 gets what it held, and hangs at the same sample.
  f.status.workers[1] = worker_in(1, child_state::starting);
  f.loading.erase(1);
  f.under_way[0] = batch_at(4, batch_stage::leased, 0);
  f.under_way[2] = batch_at(6, batch_stage::leased, 0);
  for (std::uint32_t rows = 0; rows <= 13; ++rows) {
    has_finished(f, rows);
    CHECK(watch.look(start + 9s, f) == news::none);
  }
  // worker/1 is back and loads later batches for the first time.
  f.status.workers[1] = worker_in(1, child_state::ready);
  f.under_way[2] = batch_at(6, batch_stage::loaded, 1);
  f.under_way.push_back(batch_at(7, batch_stage::loaded, 1));
  CHECK(watch.look(start + 10s, f) == news::none);
  REQUIRE(watch.stalled());
  CHECK(watch.stalled()->seconds == 10);
  // worker/0 is killed, too; the sample is tried alone and hangs again.
  f.status.workers[0] = worker_in(0, child_state::starting);
  f.status.workers[2] = worker_in(sacrificial, child_state::ready);
  f.loading.erase(0);
  f.under_way[0] = batch_at(4, batch_stage::leased, sacrificial);
  f.under_way[0].samples = 1;
  has_finished(f, 0, sacrificial);
  watch.look(start + 20s, f);
  REQUIRE(watch.stalled());
  CHECK(watch.stalled()->seconds == 20);
  // The sample is quarantined, and the batch loaded without it.
  f.loading.clear();
  f.status.workers[0] = worker_in(0, child_state::ready);
  f.under_way[0] = batch_at(4, batch_stage::leased, 0);
  CHECK(watch.look(start + 30s, f) == news::none);
  CHECK(watch.stalled()->seconds == 30);
  SECTION("it advances further than before") {
    has_finished(f, 14);
    CHECK(watch.look(start + 31s, f) == news::moves_again);
  }
  SECTION("it is loaded") {
    f.under_way[0] = batch_at(4, batch_stage::loaded, 0);
    CHECK(watch.look(start + 31s, f) == news::moves_again);
  }
  SECTION("it is delivered") {
    f.released = 1;
    f.under_way.erase(f.under_way.begin());
    CHECK(watch.look(start + 31s, f) == news::moves_again);
  }
  CHECK_FALSE(watch.stalled());
}

TEST_CASE("until a stall is reported, any batch that advances is progress") {
  progress_watch watch;
  progress_facts f = asking();
  f.status.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::ready)};
  f.under_way = {batch_at(0, batch_stage::leased, 0), batch_at(1, batch_stage::leased, 1)};
  watch.look(start, f);
  has_finished(f, 3, 1);
  CHECK(watch.look(start + 4s, f) == news::none);
  CHECK(watch.look(start + 8s, f) == news::none);
  CHECK(watch.look(start + 9s, f) == news::stalled);
  has_finished(f, 4, 1);
  CHECK(watch.look(start + 10s, f) == news::none);
  CHECK(watch.stalled()->seconds == 6);
}

TEST_CASE("what others load while a batch is tried again does not hide that the stream waits for it") {
  progress_watch watch;
  progress_facts f = asking();
  f.status.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::ready)};
  f.under_way = {batch_at(0, batch_stage::leased, 0), batch_at(1, batch_stage::leased, 1)};
  watch.look(start, f);
  has_finished(f, 3, 1);
  CHECK(watch.look(start + 4s, f) == news::none);
  // worker/0 is killed, and its replacement gets the batch; worker/1 continues.
  f.under_way[0].incarnation = 2;
  has_finished(f, 4, 1);
  CHECK(watch.look(start + 8s, f) == news::none);
  has_finished(f, 5, 1);
  CHECK(watch.look(start + 9s, f) == news::stalled);
  CHECK(watch.stalled()->seconds == 5);
}

TEST_CASE("no progress is required while no batch is due") {
  progress_watch watch;
  progress_facts f = asking();
  f.consumer_waits = false;
  SECTION("before the first demand") {}
  SECTION("the consumer has taken all prepared batches") {
    f.under_way = {batch_at(0, batch_stage::taken), batch_at(1, batch_stage::taken)};
  }
  SECTION("the session is paused and its consumer requests no batch") {
    f.status.state = session_state::paused;
    f.under_way = {batch_at(0, batch_stage::taken), batch_at(1, batch_stage::ready)};
  }
  SECTION("the stream has ended") {
    f.consumer_waits = true;
    f.status.outcome = run_outcome::finished;
  }
  SECTION("the session is being stopped") {
    f.consumer_waits = true;
    f.status.state = session_state::stopping;
  }
  watch.look(start, f);
  CHECK(watch.look(start + 1h, f) == news::none);
  CHECK_FALSE(watch.stalled());
}

TEST_CASE("the end of a pause ends its stall, and a stall that follows counts from there") {
  progress_watch watch;
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::leased)};
  f.status.state = session_state::paused;
  watch.look(start, f);
  CHECK(watch.look(start + 60s, f) == news::stalled);
  CHECK(watch.stalled()->kind == stall_kind::operator_);
  f.status.state = session_state::ok;
  CHECK(watch.look(start + 61s, f) == news::none);
  CHECK_FALSE(watch.stalled());
  CHECK(watch.look(start + 65s, f) == news::none);
  CHECK(watch.look(start + 66s, f) == news::stalled);
  CHECK(watch.stalled()->seconds == 5);
}

TEST_CASE("a stall continues after a pause in its middle, and the pause does not count") {
  progress_watch watch;
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::leased)};
  watch.look(start, f);
  CHECK(watch.look(start + 10s, f) == news::stalled);
  f.status.state = session_state::paused;
  CHECK(watch.look(start + 11s, f) == news::stalled);
  CHECK(watch.look(start + 61s, f) == news::none);
  CHECK(watch.stalled()->seconds == 61);
  f.status.state = session_state::ok;
  CHECK(watch.look(start + 62s, f) == news::stalled);
  CHECK(watch.stalled()->kind == stall_kind::worker);
  CHECK(watch.stalled()->seconds == 11);
}

TEST_CASE("a change in what is awaited is another stall") {
  progress_watch watch;
  progress_facts f = asking();
  f.status.gpu_state = child_state::starting;
  watch.look(start, f);
  CHECK(watch.look(start + 5s, f) == news::stalled);
  f.status.gpu_state = child_state::ready;
  CHECK(watch.look(start + 6s, f) == news::stalled);
  CHECK(watch.stalled()->kind == stall_kind::worker);
  CHECK(watch.look(start + 7s, f) == news::none);
}

TEST_CASE("a stall names its duration and what it waits for") {
  progress_watch watch;
  progress_facts f = asking();
  f.under_way = {batch_at(2, batch_stage::leased)};
  CHECK(watch.look(start, f) == news::none);
  CHECK(watch.look(start + 4s, f) == news::none);
  CHECK(watch.look(start + 6s, f) == news::stalled);
  REQUIRE(watch.stalled());
  CHECK(watch.stalled()->seconds == 6);
  const awaited who = find_blocker(f);
  CHECK(watch.stalled()->text == "waiting for " + who.text);
  CHECK(watch.stalled()->kind == who.kind);
  CHECK(watch.stalled()->worker == who.worker);
}

TEST_CASE("a stall says whether the process that it waits for is suspended") {
  progress_watch watch;
  progress_facts f = asking();
  f.owner_is_elsewhere = true;
  f.owner_is_frozen = true;
  watch.look(start, f);
  REQUIRE(watch.look(start + 6s, f) == news::stalled);
  CHECK(watch.stalled()->suspended);
  f.owner_is_frozen = false;
  watch.look(start + 7s, f);
  REQUIRE(watch.stalled());
  CHECK_FALSE(watch.stalled()->suspended);
}

TEST_CASE("a pool stalls when jobs wait for 5 s and none runs or ends") {
  progress_watch watch;
  progress_facts f;
  f.status.state = session_state::ok;
  f.status.workers = {worker_in(0, child_state::starting)};
  f.sacrificial_place = sacrificial;
  f.status.jobs.emplace();
  f.status.jobs->running = 1;
  watch.look(start, f);
  CHECK(watch.look(start + 60s, f) == news::none);  // a running job may take long
  f.status.jobs->running = 0;
  f.status.jobs->waiting = 2;
  f.status.jobs->ok = 1;
  CHECK(watch.look(start + 62s, f) == news::none);
  CHECK(watch.look(start + 67s, f) == news::stalled);
  CHECK(watch.stalled()->text == "waiting for worker/0, which is starting");
  f.status.jobs->ok = 2;
  CHECK(watch.look(start + 68s, f) == news::moves_again);
}

TEST_CASE("a data loader stalls when the batch that its consumer awaits gets to no further sample for 5 s") {
  progress_watch watch;
  progress_facts f;
  f.status.state = session_state::ok;
  f.status.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::ready)};
  f.status.workers[1].current_sample = "batch at position 1232 of epoch 0 (job 78)";
  f.sacrificial_place = sacrificial;
  f.status.jobs.emplace();
  f.status.jobs->of_batches = true;
  f.status.jobs->running = 1;
  watch.look(start, f);
  CHECK(watch.look(start + 600s, f) == news::none);  // the consumer works on a batch
  f.batch = awaited_batch{78, {batch_step::sample, 5, "sample 1237"}, {}};
  CHECK(watch.look(start + 601s, f) == news::none);
  CHECK(watch.look(start + 605s, f) == news::none);
  CHECK(watch.look(start + 606s, f) == news::stalled);
  CHECK(watch.stalled()->kind == stall_kind::sample);
  CHECK(watch.stalled()->worker == 1);
  CHECK(watch.stalled()->sample == "sample 1237");
  f.batch->doing = {};  // the consumer waits again for the same batch, and its worker has not been examined yet
  CHECK(watch.look(start + 607s, f) == news::none);
  f.batch->doing = {batch_step::sample, 6, "sample 1238"};
  CHECK(watch.look(start + 608s, f) == news::moves_again);
  f.status.jobs->ok = 1;  // another worker has finished a batch
  CHECK(watch.look(start + 612s, f) == news::none);
  CHECK(watch.look(start + 616s, f) == news::none);
  CHECK(watch.look(start + 617s, f) == news::stalled);
}

TEST_CASE("a data loader's stall keeps its beginning while its batch is tried again, even as another job") {
  progress_watch watch;
  progress_facts f;
  f.status.state = session_state::ok;
  f.status.workers = {worker_in(0, child_state::ready)};
  f.sacrificial_place = sacrificial;
  f.status.jobs.emplace();
  f.status.jobs->of_batches = true;
  f.status.jobs->running = 1;
  f.status.batches_done = 9;
  f.batch = awaited_batch{78, {batch_step::sample, 5, "sample 1237"}, {}};
  watch.look(start, f);
  CHECK(watch.look(start + 5s, f) == news::stalled);
  f.batch = awaited_batch{78, {batch_step::setup, 65535, ""}, {}};  // a new worker, which tries the batch again, sets up the dataset
  CHECK(watch.look(start + 8s, f) == news::none);
  for (std::uint64_t sample = 0; sample <= 5; ++sample) {
    f.batch = awaited_batch{78, {batch_step::sample, sample, ""}, {}};
    CHECK(watch.look(start + 9s, f) == news::none);
  }
  f.status.jobs->failed = 1;  // the job has exceeded its time limit
  f.batch = awaited_batch{91, {batch_step::sample, 4, ""}, {}};
  f.status.jobs->ok = 3;  // later batches
  CHECK(watch.look(start + 65s, f) == news::none);
  REQUIRE(watch.stalled());
  CHECK(watch.stalled()->seconds == 65);
  SECTION("the batch advances") {
    f.batch->doing.number = 6;
  }
  SECTION("the batch is delivered, or left out") {
    f.status.batches_done = 10;
    f.batch = awaited_batch{92, {batch_step::sample, 0, ""}, {}};
  }
  CHECK(watch.look(start + 66s, f) == news::moves_again);
  CHECK_FALSE(watch.stalled());
}

TEST_CASE("a start is a stall only if it takes longer than usual, and each part of it has its own limit") {
  progress_watch watch;
  progress_facts f = asking();
  f.worker_start_deadline = 30s;
  f.owner_start_deadline = 120s;
  f.status.gpu_state = child_state::starting;
  f.status.workers = {worker_in(0, child_state::starting), worker_in(1, child_state::starting)};
  watch.look(start, f);
  CHECK(watch.look(start + 29s, f) == news::none);
  SECTION("the owner takes too long") {
    CHECK(watch.look(start + 30s, f) == news::stalled);
    CHECK(watch.stalled()->text == "waiting for the GPU owner, which is starting");
    CHECK(watch.stalled()->seconds == 30);
  }
  SECTION("then a worker takes too long") {
    f.status.gpu_state = child_state::ready;
    CHECK(watch.look(start + 29s, f) == news::none);
    CHECK(watch.look(start + 43s, f) == news::none);
    CHECK(watch.look(start + 44s, f) == news::stalled);
    CHECK(watch.stalled()->text == "waiting for worker/0, which is starting");
  }
  SECTION("when a worker becomes ready, the limit for the others restarts") {
    f.status.gpu_state = child_state::ready;
    watch.look(start + 29s, f);
    f.status.workers[1].state = child_state::ready;
    CHECK(watch.look(start + 40s, f) == news::none);
    f.status.workers[1].state = child_state::starting;
    CHECK(watch.look(start + 54s, f) == news::none);
    CHECK(watch.look(start + 55s, f) == news::stalled);
  }
}

TEST_CASE("a pool whose workers die at each start stalls, however often they start") {
  progress_watch watch;
  progress_facts f = asking();
  f.worker_start_deadline = 30s;
  news last = news::none;
  int second = 0;
  for (; second < 60 && last == news::none; ++second) {
    f.status.workers = {worker_in(0, second % 2 == 0 ? child_state::starting : child_state::ready)};
    f.status.workers[0].incarnation = 1U + static_cast<unsigned>(second) / 2;
    last = watch.look(start + std::chrono::seconds(second), f);
  }
  CHECK(last == news::stalled);
  CHECK(second <= 18);
}

TEST_CASE("the time limit for a start is its share of the deadline") {
  CHECK(start_patience(10s) == 10s);
  CHECK(start_patience(30s) == 15s);
  CHECK(start_patience(120s) == 30s);
  CHECK(start_patience(1h) == 60s);
}
