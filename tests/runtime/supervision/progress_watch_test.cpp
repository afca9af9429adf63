// Who is waited for when nothing moves, one situation a test. Time is the test's.
#include "runtime/supervision/progress_watch.hpp"

#include <catch2/catch_test_macros.hpp>

#include <initializer_list>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;

namespace {

using news = progress_watch::news;
const steady_time start = steady_time{} + 1h;
constexpr std::uint32_t sacrificial = 64;

batch_passage batch_at(stream_position position, batch_stage stage, std::uint32_t worker = 0) {
  batch_passage b;
  b.position = b.sequence = position;
  b.worker = worker;
  b.incarnation = 1;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(stage); ++i)
    b.at[i] = 1 + static_cast<std::int64_t>(i);
  return b;
}

worker_status worker_in(std::uint32_t id, const std::string& state) {
  worker_status w;
  w.id = id;
  w.state = state;
  w.incarnation = 1;
  if (state != "stopped" && state != "backoff" && state != "failed") w.pid = 100 + static_cast<int>(id);
  return w;
}

/// A session with one idle worker whose consumer asks for a batch.
progress_facts asking() {
  progress_facts f;
  f.status.state = "ok";
  f.status.gpu_state = "ready";
  f.status.workers = {worker_in(0, "ready")};
  f.buffers = 4;
  f.sacrificial_place = sacrificial;
  f.consumer_waits = true;
  return f;
}

/// What a watch says that has seen these facts for six seconds.
stall_report stall_of(const progress_facts& f) {
  progress_watch watch;
  CHECK(watch.look(start, f) == news::none);
  CHECK(watch.look(start + 4s, f) == news::none);
  CHECK(watch.look(start + 6s, f) == news::stalled);
  REQUIRE(watch.stalled());
  CHECK(watch.stalled()->seconds == 6);
  return *watch.stalled();
}

}  // namespace

TEST_CASE("a stall is told once, with its age in every look, and its end is told once") {
  progress_watch watch;
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::begun)};
  watch.look(start, f);
  CHECK(watch.look(start + 5s, f) == news::stalled);
  CHECK(watch.look(start + 6s, f) == news::none);
  CHECK(watch.stalled()->seconds == 6);
  f.status.workers[0].samples = 1;
  CHECK(watch.look(start + 7s, f) == news::moves_again);
  CHECK_FALSE(watch.stalled());
  CHECK(watch.look(start + 8s, f) == news::none);
}

TEST_CASE("a finished sample and a batch that passes a stage are movement; a restart is none") {
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::leased)};
  progress_watch watch;
  watch.look(start, f);
  SECTION("a sample") {
    f.status.workers[0].samples = 1;
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
}

TEST_CASE("nothing has to move while no batch is owed to anybody") {
  progress_watch watch;
  progress_facts f = asking();
  f.consumer_waits = false;
  SECTION("before the first demand") {}
  SECTION("all that was prepared is with the consumer") {
    f.under_way = {batch_at(0, batch_stage::taken), batch_at(1, batch_stage::taken)};
  }
  SECTION("the stream has ended") {
    f.consumer_waits = true;
    f.status.outcome = run_outcome::finished;
  }
  SECTION("the session is being stopped") {
    f.consumer_waits = true;
    f.status.state = "stopping";
  }
  watch.look(start, f);
  CHECK(watch.look(start + 1h, f) == news::none);
  CHECK_FALSE(watch.stalled());
}

TEST_CASE("another thing that is waited for is another stall") {
  progress_watch watch;
  progress_facts f = asking();
  f.status.gpu_state = "starting";
  watch.look(start, f);
  CHECK(watch.look(start + 5s, f) == news::stalled);
  f.status.gpu_state = "ready";
  CHECK(watch.look(start + 6s, f) == news::stalled);
  CHECK(watch.stalled()->kind == "worker");
  CHECK(watch.look(start + 7s, f) == news::none);
}

TEST_CASE("a sample that takes long is named with its worker, its batch and where it stands") {
  progress_facts f = asking();
  f.under_way = {batch_at(17, batch_stage::begun, 3), batch_at(18, batch_stage::loaded)};
  f.status.workers.push_back(worker_in(3, "ready"));
  f.status.workers[1].current_sample = "cats/tom.jpg";
  f.status.workers[1].current_sample_seconds = 7.25;
  SECTION("in the kernel") {
    f.standing[3] = "folio_wait_bit_common";
    const stall_report s = stall_of(f);
    CHECK(s.kind == "sample");
    CHECK(s.worker == 3);
    CHECK(s.text ==
          "waiting for worker/3, which has been loading sample 'cats/tom.jpg' for 7.25 s (it waits in "
          "folio_wait_bit_common), in batch 17 of epoch 0");
  }
  SECTION("computing") {
    f.standing[3] = "running";
    CHECK(stall_of(f).text.find("(it computes)") != std::string::npos);
  }
  SECTION("unknown") {
    CHECK(stall_of(f).text.find("for 7.25 s, in batch") != std::string::npos);
  }
}

TEST_CASE("a worker that has the next batch and works on nothing is named") {
  progress_facts f = asking();
  f.under_way = {batch_at(2, batch_stage::leased)};
  CHECK(stall_of(f).text == "waiting for worker/0, which has batch 2 of epoch 0 and works on no sample");
  f.status.workers[0].state = "unkillable";
  CHECK(stall_of(f).text == "waiting for worker/0, which has batch 2 of epoch 0 and is unkillable");
}

TEST_CASE("a consumer that takes no batch is named before whatever is behind it") {
  progress_facts f = asking();
  f.consumer_waits = false;
  f.status.state = "paused";
  f.under_way = {batch_at(0, batch_stage::ready), batch_at(1, batch_stage::ready),
                 batch_at(2, batch_stage::begun)};
  const stall_report s = stall_of(f);
  CHECK(s.kind == "consumer");
  CHECK(s.text == "waiting for the consumer, which has 2 batches to take and asks for none");
}

TEST_CASE("a consumer that holds every buffer and asks for more is told to release one") {
  progress_facts f = asking();
  f.buffers = 2;
  f.under_way = {batch_at(0, batch_stage::taken), batch_at(1, batch_stage::taken),
                 batch_at(2, batch_stage::ordered)};
  const stall_report s = stall_of(f);
  CHECK(s.kind == "consumer");
  CHECK(s.text ==
        "waiting for the consumer, which holds 2 of 2 device buffers and asks for another batch: it has to "
        "release one first");
}

TEST_CASE("the GPU owner is named while it is not ready, and while it has a batch") {
  progress_facts f = asking();
  SECTION("starting") {
    f.status.gpu_state = "starting";
    CHECK(stall_of(f).text == "waiting for the GPU owner, which is starting");
  }
  SECTION("copying") {
    f.under_way = {batch_at(5, batch_stage::submitted)};
    CHECK(stall_of(f).text == "waiting for the GPU owner, which has batch 5 of epoch 0 to copy");
  }
  SECTION("its sink") {
    f.consumer_waits = false;
    f.owner_is_elsewhere = true;
    f.status.gpu_pid = 4711;
    f.under_way = {batch_at(5, batch_stage::ordered)};
    CHECK(stall_of(f).text == "waiting for the GPU owner (pid 4711), whose sink has batch 5 of epoch 0");
  }
  CHECK(stall_of(f).kind == "gpu");
}

TEST_CASE("an operator who paused the session or drained every worker is reminded how to go on") {
  progress_facts f = asking();
  SECTION("paused") {
    f.status.state = "paused";
    CHECK(stall_of(f).text.find("penstock resume") != std::string::npos);
  }
  SECTION("drained") {
    f.status.workers = {worker_in(0, "stopped"), worker_in(1, "stopped"), worker_in(sacrificial, "stopped")};
    f.status.workers[0].why_stopped = f.status.workers[1].why_stopped = "drained";
    CHECK(stall_of(f).text.find("penstock restart workers") != std::string::npos);
  }
  CHECK(stall_of(f).kind == "operator");
}

TEST_CASE("a suspect that has to be loaded alone is what its batch waits for") {
  progress_facts f = asking();
  // The batch was last leased to a worker that died.
  f.under_way = {batch_at(4, batch_stage::begun)};
  f.status.workers[0].incarnation = 2;
  f.status.workers.push_back(worker_in(sacrificial, "starting"));
  CHECK(stall_of(f).kind == "trial");
  CHECK(stall_of(f).text ==
        "waiting for a sample that may kill workers, to be tried alone in worker/64, which is starting");
  f.status.workers[1].state = "ready";
  f.status.workers[1].current_sample = "tom.jpg";
  f.status.workers[1].current_sample_seconds = 6;
  CHECK(stall_of(f).text.find("which has been loading sample 'tom.jpg' for 6 s") != std::string::npos);
}

TEST_CASE("without anybody at work the worker that comes next is named, or that nobody comes") {
  progress_facts f = asking();
  f.status.workers = {worker_in(0, "backoff"), worker_in(1, "backoff"), worker_in(2, "failed")};
  f.status.workers[0].next_restart_seconds = 12;
  f.status.workers[1].next_restart_seconds = 8;
  f.status.workers[1].last_death.emplace();
  f.status.workers[1].last_death->signal = "SIGSEGV";
  SECTION("in backoff") {
    CHECK(stall_of(f).text == "waiting for worker/1, which is restarted in 8 s after SIGSEGV");
  }
  SECTION("starting") {
    f.status.workers[0] = worker_in(0, "starting");
    CHECK(stall_of(f).text == "waiting for worker/0, which is starting");
  }
  SECTION("nobody") {
    f.status.workers = {worker_in(2, "failed"), worker_in(3, "stopped")};
    f.status.workers[1].why_stopped = "not restarted";
    CHECK(stall_of(f).kind == "nobody");
    CHECK(stall_of(f).text ==
          "waiting for nobody: no worker is left (worker/2 is failed, worker/3 is not restarted)");
  }
  SECTION("ready but idle") {
    f.status.workers = {worker_in(2, "ready")};
    CHECK(stall_of(f).text == "waiting for worker/2, which is ready and was given nothing");
  }
}
