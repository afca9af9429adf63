// What the stream waits for, one situation per test.
#include "runtime/supervision/awaited.hpp"

#include "tests/runtime/supervision/progress_facts.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

/// A data loader whose consumer waits for job 78, which worker/1 has been running for 106 s.
progress_facts loading_job_78() {
  progress_facts f;
  f.status.state = session_state::ok;
  f.status.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::ready)};
  f.status.workers[1].current_sample = "batch at position 1232 of epoch 0 (job 78)";
  f.status.workers[1].current_sample_seconds = 106;
  f.sacrificial_place = sacrificial;
  f.status.jobs.emplace();
  f.status.jobs->of_batches = true;
  f.status.jobs->running = 1;
  f.batch = awaited_batch{78, {batch_step::sample, 5, "sample 1237"}, {}};
  return f;
}

}  // namespace

TEST_CASE("a slow sample is named with its worker, its batch and the place where it waits") {
  progress_facts f = asking();
  f.under_way = {batch_at(17, batch_stage::begun, 3), batch_at(18, batch_stage::loaded)};
  f.status.workers.push_back(worker_in(3, child_state::ready));
  f.status.workers[1].current_sample = "cats/tom.jpg";
  f.status.workers[1].current_sample_seconds = 7.25;
  SECTION("in the kernel") {
    f.standing[3] = "folio_wait_bit_common";
    const awaited s = find_blocker(f);
    CHECK(s.kind == stall_kind::sample);
    CHECK(s.worker == 3);
    CHECK(s.text ==
          "worker/3, which has been loading sample 'cats/tom.jpg' for 7.25 s (it waits in "
          "folio_wait_bit_common), in batch 17 of epoch 0");
  }
  SECTION("computing") {
    f.standing[3] = "running";
    CHECK(find_blocker(f).text.find("(it computes)") != std::string::npos);
  }
  SECTION("stopped") {
    f.standing[3] = "stopped";
    CHECK(find_blocker(f).text.find("(its process is suspended)") != std::string::npos);
  }
  SECTION("unknown") {
    CHECK(find_blocker(f).text.find("for 7.25 s, in batch") != std::string::npos);
  }
}

TEST_CASE("a GPU owner whose process is suspended is named before its sink") {
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::ready)};
  f.owner_is_elsewhere = true;
  f.status.gpu_pid = 4712;
  CHECK(find_blocker(f).kind == stall_kind::consumer);
  f.owner_is_frozen = true;
  CHECK(find_blocker(f).kind == stall_kind::gpu_owner);
  CHECK(find_blocker(f).text == "the GPU owner (pid 4712), whose process is suspended");
  CHECK(find_blocker(f).suspended);
}

TEST_CASE("a worker that is suspended between two samples is named as such") {
  progress_facts f = asking();
  f.under_way = {batch_at(2, batch_stage::leased)};
  f.standing[0] = "stopped";
  CHECK(find_blocker(f).kind == stall_kind::worker);
  CHECK(find_blocker(f).text == "worker/0, which has batch 2 of epoch 0, but whose process (pid 100) is suspended");
  CHECK(find_blocker(f).suspended);
}

TEST_CASE("an idle worker that has the next batch is named") {
  progress_facts f = asking();
  f.under_way = {batch_at(2, batch_stage::leased)};
  CHECK(find_blocker(f).text == "worker/0, which has batch 2 of epoch 0 and is not working on a sample");
  f.status.workers[0].state = child_state::unkillable;
  CHECK(find_blocker(f).text == "worker/0, which has batch 2 of epoch 0 and is unkillable");
}

TEST_CASE("a consumer that takes no batch is named before anything behind it") {
  progress_facts f = asking();
  f.consumer_waits = false;
  f.status.state = session_state::paused;
  f.under_way = {batch_at(0, batch_stage::ready), batch_at(1, batch_stage::ready),
                 batch_at(2, batch_stage::begun)};
  const awaited s = find_blocker(f);
  CHECK(s.kind == stall_kind::consumer);
  CHECK(s.text == "the consumer, which has 2 batches to take but asks for none");
}

TEST_CASE("a consumer that holds every buffer and asks for more is advised to release one") {
  progress_facts f = asking();
  f.buffers = 2;
  f.under_way = {batch_at(0, batch_stage::taken), batch_at(1, batch_stage::taken),
                 batch_at(2, batch_stage::ordered)};
  const awaited s = find_blocker(f);
  CHECK(s.kind == stall_kind::consumer);
  CHECK(s.text ==
        "the consumer, which holds 2 of 2 device buffers but asks for another batch: it must release one "
        "first");
}

TEST_CASE("a slow sink is the consumer, whichever process runs the owner") {
  progress_facts f = asking();
  f.consumer_waits = false;
  f.under_way = {batch_at(5, batch_stage::taken), batch_at(6, batch_stage::ready),
                 batch_at(7, batch_stage::ordered), batch_at(8, batch_stage::begun)};
  CHECK(find_blocker(f).kind == stall_kind::consumer);
  f.owner_is_elsewhere = true;
  f.status.gpu_pid = 4711;
  CHECK(find_blocker(f).kind == stall_kind::consumer);
  CHECK(find_blocker(f).text ==
        "the consumer, which is the sink of the GPU owner (pid 4711) and has batch 5 of epoch 0");
  SECTION("until that process has died with its batches") {
    f.status.gpu_state = child_state::backoff;
    CHECK(find_blocker(f).text == "the GPU owner, which is backoff");
  }
}

TEST_CASE("without a requested batch, a stream waits for the consumer's next request or has ended") {
  progress_facts f = asking();
  f.consumer_waits = false;
  f.under_way = {batch_at(0, batch_stage::taken)};
  CHECK_FALSE(is_owed(f));
  CHECK(find_blocker(f).text == "the consumer, which asks for no batch");
  f.status.outcome = run_outcome::finished;
  CHECK(find_blocker(f).text == "nothing: the stream is over");
}

TEST_CASE("the GPU owner is named while it is not ready, and while it works on a batch") {
  progress_facts f = asking();
  SECTION("starting") {
    f.status.gpu_state = child_state::starting;
    CHECK(find_blocker(f).text == "the GPU owner, which is starting");
  }
  SECTION("copying") {
    f.under_way = {batch_at(5, batch_stage::submitted)};
    CHECK(find_blocker(f).text == "the GPU owner, which has batch 5 of epoch 0 to copy");
  }
  SECTION("copying in its own process") {
    f.consumer_waits = false;
    f.owner_is_elsewhere = true;
    f.status.gpu_pid = 4711;
    f.under_way = {batch_at(5, batch_stage::ordered)};
    CHECK(find_blocker(f).text == "the GPU owner (pid 4711), which has batch 5 of epoch 0 to copy");
  }
  CHECK(find_blocker(f).kind == stall_kind::gpu_owner);
}

TEST_CASE("after a pause of the session or a drain of every worker, the operator learns how to continue") {
  progress_facts f = asking();
  SECTION("paused") {
    f.status.state = session_state::paused;
    CHECK(find_blocker(f).text == "an operator, who paused the session; `penstock resume` ends the pause");
    f.paused_by = pauser::operator_;
    CHECK(find_blocker(f).text.starts_with("an operator, who "));
    f.paused_by = pauser::program;
    CHECK(find_blocker(f).text == "the program, which paused the session; `penstock resume` ends the pause");
  }
  SECTION("drained") {
    f.status.workers = {worker_in(0, child_state::stopped), worker_in(1, child_state::stopped), worker_in(sacrificial, child_state::stopped)};
    f.status.workers[0].why_stopped = f.status.workers[1].why_stopped = vacancy::drained;
    CHECK(find_blocker(f).text.find("penstock restart workers") != std::string::npos);
  }
  CHECK(find_blocker(f).kind == stall_kind::operator_);
}

TEST_CASE("if a suspect must be loaded alone, its batch waits for that") {
  progress_facts f = asking();
  // The batch was last leased to a worker that died.
  f.under_way = {batch_at(4, batch_stage::begun)};
  f.status.workers[0].incarnation = 2;
  f.status.workers.push_back(worker_in(sacrificial, child_state::starting));
  CHECK(find_blocker(f).kind == stall_kind::probation);
  CHECK(find_blocker(f).text ==
        "a sample that may kill workers and must be tried alone in worker/64, which is starting");
  f.status.workers[1].state = child_state::ready;
  f.status.workers[1].current_sample = "tom.jpg";
  f.status.workers[1].current_sample_seconds = 6;
  CHECK(find_blocker(f).text.find("which has been loading sample 'tom.jpg' for 6 s") != std::string::npos);
}

TEST_CASE("without a working worker, the next one to start is named, or the fact that there is none") {
  progress_facts f = asking();
  f.status.workers = {worker_in(0, child_state::backoff), worker_in(1, child_state::backoff), worker_in(2, child_state::failed)};
  f.status.workers[0].next_restart_seconds = 12;
  f.status.workers[1].next_restart_seconds = 8;
  f.status.workers[1].last_death.emplace();
  f.status.workers[1].last_death->signal = "SIGSEGV";
  SECTION("in backoff") {
    CHECK(find_blocker(f).text == "worker/1, which restarts in 8 s after SIGSEGV");
  }
  SECTION("starting") {
    f.status.workers[0] = worker_in(0, child_state::starting);
    CHECK(find_blocker(f).text == "worker/0, which is starting");
  }
  SECTION("no worker") {
    f.status.workers = {worker_in(2, child_state::failed), worker_in(3, child_state::stopped)};
    f.status.workers[1].why_stopped = vacancy::not_restarted;
    CHECK(find_blocker(f).kind == stall_kind::nobody);
    CHECK(find_blocker(f).text ==
          "a worker, but none is left (worker/2 is failed, worker/3 is not restarted)");
  }
  SECTION("ready but idle") {
    f.status.workers = {worker_in(2, child_state::ready)};
    CHECK(find_blocker(f).text == "worker/2, which is ready but has no lease");
  }
}

TEST_CASE("an incomplete group is named before any cause in this process") {
  progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::ordered)};
  group_status group;
  group.group = "job/photos";
  SECTION("a rank is missing") {
    group.waits_for = "rank 3 to arrive";
    f.status.group = group;
    CHECK(find_blocker(f).kind == stall_kind::group);
    CHECK(find_blocker(f).text == "the group 'job/photos': rank 3 to arrive");
    CHECK(std::string_view(name_of(stall_kind::group)) == "group");
  }
  SECTION("no rank is missing") {
    f.status.group = group;
    CHECK(find_blocker(f).kind == stall_kind::gpu_owner);
  }
}

TEST_CASE("if jobs wait and none runs, the missing resource of the pool is named") {
  progress_facts f;
  f.status.state = session_state::ok;
  f.status.workers = {worker_in(0, child_state::stopped), worker_in(1, child_state::stopped)};
  f.sacrificial_place = sacrificial;
  f.status.jobs.emplace();
  CHECK(find_blocker(f).text == "jobs to be submitted");
  CHECK_FALSE(is_owed(f));
  f.status.jobs->waiting = 3;
  CHECK(is_owed(f));
  SECTION("workers that were drained") {
    for (worker_status& w : f.status.workers) w.why_stopped = vacancy::drained;
    const awaited s = find_blocker(f);
    CHECK(s.kind == stall_kind::operator_);
    CHECK(s.text == "an operator, who drained all workers; `penstock restart workers` brings them back");
  }
  SECTION("a pause") {
    f.status.state = session_state::paused;
    CHECK(find_blocker(f).text == "an operator, who paused the pool; `penstock resume` ends the pause");
  }
  SECTION("a probation") {
    f.status.workers.push_back(worker_in(sacrificial, child_state::starting));
    CHECK(find_blocker(f).text ==
          "a job that may kill workers and must be tried alone in worker/64, which is starting");
  }
  SECTION("a worker with full slots") {
    f.status.workers[0] = worker_in(0, child_state::ready);
    CHECK(find_blocker(f).text ==
          "worker/0, which is ready but has no lease: callers may keep results in all of its slots");
  }
  SECTION("callers that keep results, even if no job waits because they wait to submit one") {
    f.status.jobs->waiting = 0;
    CHECK_FALSE(is_owed(f));
    f.status.jobs->callers_wait = true;
    CHECK(is_owed(f));
    f.status.jobs->callers_hold_everything = true;
    f.status.jobs->result_bytes = 7U << 20U;
    f.status.jobs->memory_bytes = 8U << 20U;
    const awaited s = find_blocker(f);
    CHECK(s.kind == stall_kind::consumer);
    CHECK(s.text ==
          "callers to free results: 7.00 MiB of 8.00 MiB ([jobs] memory) are kept, which leaves no room for "
          "the next job");
  }
  SECTION("a running job, for as long as it takes") {
    f.status.jobs->running = 1;
    CHECK_FALSE(is_owed(f));
    CHECK(find_blocker(f).text == "1 running job");
  }
}

TEST_CASE("a data loader waits for the sample that the awaited batch's worker is loading") {
  progress_facts f = loading_job_78();
  CHECK(is_owed(f));
  SECTION("named with its position") {
    f.standing[1] = "hrtimer_nanosleep";
    const awaited s = find_blocker(f);
    CHECK(s.kind == stall_kind::sample);
    CHECK(s.worker == 1);
    CHECK(s.sample == "sample 1237");
    CHECK(s.text == "worker/1, which has been loading sample 1237 for 1 m 46 s (it waits in hrtimer_nanosleep)");
  }
  SECTION("timed from when the batch got to it") {
    f.now = steady_time(200s);
    f.batch->since = steady_time(193s);
    CHECK(find_blocker(f).text == "worker/1, which has been loading sample 1237 for 7 s");
  }
  SECTION("or for another step of the batch, where setup may take as long as a start") {
    f.worker_start_deadline = 5min;
    f.batch->doing = {batch_step::collation, 9, ""};
    CHECK(find_blocker(f).text == "worker/1, which has been collating the next batch for 1 m 46 s");
    CHECK(find_blocker(f).usual == 0s);
    f.batch->doing = {batch_step::setup, 8, ""};
    CHECK(find_blocker(f).text == "worker/1, which has been setting up the dataset for 1 m 46 s");
    CHECK(find_blocker(f).usual == 60s);
  }
  SECTION("but not for a job whose number has the same ending") {
    f.batch->job = 8;
    const awaited s = find_blocker(f);
    CHECK(s.kind == stall_kind::worker);
    CHECK(s.text == "a worker that is free for the next batch: worker/1 has been loading batch at position 1232 of epoch 0 for 1 m 46 s");
    f.status.workers[1].current_sample = "sample 1237 (job 78)";
    CHECK(find_blocker(f).text.ends_with("worker/1 has been loading sample 1237, in a batch begun 1 m 46 s ago"));
    f.status.workers[1].current_work_seconds = 7;
    CHECK(find_blocker(f).text.ends_with("worker/1 has been loading sample 1237 for 7 s"));
    f.status.workers[1].current_work_seconds.reset();
    f.status.workers[1].current_sample = "collate_fn, with the samples [4, 5] (job 78)";
    CHECK(find_blocker(f).text.ends_with("worker/1 has been running collate_fn, with the samples [4, 5], in a batch begun 1 m 46 s ago"));
    f.status.workers[1].current_sample = "dataset setup (job 78)";
    CHECK(find_blocker(f).text.ends_with("worker/1 has been setting up the dataset for 1 m 46 s"));
  }
  SECTION("for an operator, or for a worker") {
    f.status.workers[1].current_sample.reset();
    f.status.state = session_state::paused;
    CHECK(find_blocker(f).kind == stall_kind::operator_);
    f.status.state = session_state::ok;
    f.status.workers[1] = worker_in(1, child_state::starting);
    f.status.workers[0] = worker_in(0, child_state::starting);
    CHECK(find_blocker(f).text == "worker/0, which is starting");
  }
}

TEST_CASE("a data loader whose next batch is with a worker that was suspended while it was idle waits for that worker") {
  progress_facts f = loading_job_78();
  f.status.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::ready), worker_in(2, child_state::ready)};
  f.standing = {{0, "stopped"}, {1, "futex_wait"}};
  f.leases = {{0, 2}};
  const awaited s = find_blocker(f);
  CHECK(std::tuple(s.kind, s.worker, s.suspended) == std::tuple(stall_kind::worker, 0U, true));
  CHECK(s.text == "worker/0, which has not begun the batch that it was sent, because its process (pid 100) is suspended");
  SECTION("even while another one loads a later batch") {
    f.status.workers[1].current_sample = "sample 5 (job 80)";
    CHECK(find_blocker(f).worker == 0);
  }
  SECTION("also if it runs, but has not begun") {
    f.standing.clear();
    CHECK(find_blocker(f).text == "worker/0, which has not begun the batch that it was sent");
  }
}

TEST_CASE(
    "a data loader's batch that hung before is recognised by its job, and a time limit is recommended") {
  progress_facts f = loading_job_78();
  f.status.hung.push_back({"sample 1237", 78, {{0, 40, std::chrono::system_clock::time_point(1h)}}});
  const awaited s = find_blocker(f);
  CHECK(s.hung_before == 1);
  CHECK(s.text.ends_with("; it hung before, 1 time: in worker/0 at 01:00:00 after 40 s; restarting a worker does not help, but a time limit does: "
                         "DataLoader(timeout=60, on_bad_sample=\"skip\") leaves the sample out after three tries"));
}

TEST_CASE("a data loader whose consumer requests no batch waits for that consumer, and no batch is due") {
  progress_facts f = loading_job_78();
  f.batch.reset();
  f.status.jobs->waiting = 4;
  f.status.jobs->handed = 0;
  CHECK_FALSE(is_owed(f));
  CHECK(find_blocker(f).text == "the consumer, which asks for no batch");
}
