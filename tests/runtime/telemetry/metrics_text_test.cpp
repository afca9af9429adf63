// The page of metrics, from made-up facts.
#include "runtime/telemetry/metrics_text.hpp"

#include "runtime/telemetry/metrics_page.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using telemetry::metrics_text;

namespace {

bool has_line(const std::string& page, const std::string& line) {
  return page.find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("the seconds of a stall are a gauge whose label says what is awaited, in a session and in a pool") {
  telemetry::metrics_facts facts;
  facts.status.state = session_state::ok;
  facts.stages.resize(stage_spans().size());
  SECTION("a session") {}
  SECTION("a pool") {
    facts.status.jobs.emplace();
  }
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_stalled_seconds{waits_for="worker"} 0)"));
  facts.status.stalled = stall_report{stall_kind::worker, "waiting for worker/0, which is starting", 8.5, 0};
  const std::string page = metrics_text(facts, "1");
  CHECK(has_line(page, R"(penstock_stalled_seconds{waits_for="worker"} 8.5)"));
  CHECK(has_line(page, R"(penstock_stalled_seconds{waits_for="gpu"} 0)"));
}

TEST_CASE("during a stall a series names the worker and its sample, and at other times there is none") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.status.workers.resize(2);
  facts.status.workers[1].id = 1;
  facts.status.workers[1].current_sample = "cats/\"tom\".jpg";
  CHECK(metrics_text(facts, "1").find("penstock_stall_info{") == std::string::npos);
  facts.status.stalled = stall_report{stall_kind::sample, "waiting for worker/1", 8.5, 1};
  CHECK(has_line(metrics_text(facts, "1"),
                 R"(penstock_stall_info{waits_for="sample",worker="1",sample="cats/\"tom\".jpg"} 1)"));
  facts.status.stalled = stall_report{stall_kind::gpu_owner, "waiting for the GPU owner", 8.5, {}};
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_stall_info{waits_for="gpu",worker="",sample=""} 1)"));
}

TEST_CASE("each thing that a stall can wait for, and each state of a session, has its own value of the label") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.status.state = session_state::stopping;
  facts.status.stalled = stall_report{stall_kind::group, "waiting for the group", 8.5, {}};
  const std::string page = metrics_text(facts, "1");
  for (const std::string kind : {"sample", "worker", "trial", "nobody", "gpu", "consumer", "operator"})
    CHECK(has_line(page, "penstock_stalled_seconds{waits_for=\"" + kind + "\"} 0"));
  CHECK(has_line(page, R"(penstock_stalled_seconds{waits_for="group"} 8.5)"));
  for (const std::string state : {"ok", "degraded", "failed", "paused"}) CHECK(has_line(page, "penstock_session_state{state=\"" + state + "\"} 0"));
  CHECK(has_line(page, R"(penstock_session_state{state="stopping"} 1)"));
}

TEST_CASE("the share of each limit is a gauge") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.limits.share[static_cast<std::size_t>(telemetry::limit::wire)] = 0.25;
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_limit_share{limit="wire"} 0.25)"));
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_limit_share{limit="decode"} 0)"));
}

TEST_CASE("the share of their time that workers spent without a core is a gauge") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.limits.core_wait = 0.5;
  CHECK(has_line(metrics_text(facts, "1"), "penstock_worker_core_wait_share 0.5"));
}

TEST_CASE("the sacrificial worker does not count as stopped while it is not needed") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.status.workers.resize(2);
  facts.status.workers[0].state = child_state::ready;
  facts.status.workers[1].id = 64;
  facts.status.workers[1].state = child_state::stopped;
  facts.status.workers[1].why_stopped = vacancy::not_needed;
  const std::string page = metrics_text(facts, "1");
  CHECK(page.find("\"stopped\"}") == page.find("cause=\"stopped\"}") + 6);
  CHECK(page.find("worker=\"64\"") == std::string::npos);
}

TEST_CASE(
    "process, sample and time of the last death are series, except for a worker that was asked to stop") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  CHECK(metrics_text(facts, "1").find("penstock_last_death_info{") == std::string::npos);
  death_report d;
  d.worker = 3;
  d.pid = 17;
  d.cause = death_cause::signal;
  d.signal = "SIGSEGV";
  d.sample = 5;
  d.time = std::chrono::system_clock::time_point(std::chrono::seconds(1'000'000'000));
  facts.totals.deaths = {d, d};
  facts.totals.deaths.back().path = "cats/\"tom\".jpg";
  d.cause = death_cause::stopped;
  facts.totals.deaths.push_back(d);
  const std::string page = metrics_text(facts, "1");
  CHECK(has_line(page, R"(penstock_last_death_info{worker="3",pid="17",cause="signal",reason="",signal="SIGSEGV",code="",)"
                       R"(sample="cats/\"tom\".jpg",index="5"} 1)"));
  CHECK(has_line(page, "penstock_last_death_timestamp_seconds 1000000000"));
  facts.totals.deaths.erase(facts.totals.deaths.begin() + 1);
  CHECK(metrics_text(facts, "1").find(R"(sample="sample 5",index="5"} 1)") != std::string::npos);
}

TEST_CASE("a data loader counts its samples that failed or were quarantined, and another pool has no such series") {
  telemetry::metrics_facts facts;
  facts.status.jobs.emplace();
  facts.status.failed = 3;
  facts.status.quarantined = 2;
  CHECK(metrics_text(facts, "1").find("penstock_samples_failed_total") == std::string::npos);
  facts.status.jobs->of_batches = true;
  const std::string page = metrics_text(facts, "1");
  CHECK(has_line(page, "penstock_samples_failed_total 3"));
  CHECK(has_line(page, "penstock_samples_quarantined 2"));
}

TEST_CASE("the last death in a pool names its job") {
  telemetry::metrics_facts facts;
  facts.status.jobs.emplace();
  death_report d;
  d.cause = death_cause::oom;
  d.job = 7;
  d.work = "resize";
  facts.totals.deaths = {d};
  CHECK(metrics_text(facts, "1").find(R"(cause="oom",reason="",signal="",code="",job="7",work="resize"} 1)") != std::string::npos);
}

TEST_CASE("the last 16 poisoned jobs of a pool are named by number and work") {
  telemetry::metrics_facts facts;
  facts.status.jobs.emplace();
  for (std::uint64_t job = 1; job <= 20; ++job) facts.totals.quarantine.push_back({job, "resize", 2, {"SIGSEGV", "hang"}, false, false});
  const std::string page = metrics_text(facts, "1");
  CHECK(has_line(page, R"(penstock_job_poisoned_info{job="20",work="resize",causes="SIGSEGV, hang"} 1)"));
  CHECK(page.find("penstock_job_poisoned_info{job=\"5\"") != std::string::npos);
  CHECK(page.find("penstock_job_poisoned_info{job=\"4\"") == std::string::npos);
  CHECK(page.find("penstock_sample_quarantined_info") == std::string::npos);
}

TEST_CASE("the last death of the GPU owner has its batch and its last line of output") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  owner_death_report d;
  d.pid = 18;
  d.cause = death_cause::exit;
  d.code = 79;
  d.epoch = 0;
  d.sequence = 17;
  d.last_words = "first\nan illegal memory access";
  d.time = std::chrono::system_clock::time_point(std::chrono::seconds(1'000'000'000));
  facts.totals.owner_deaths = {d};
  const std::string page = metrics_text(facts, "1");
  CHECK(has_line(page, R"(penstock_gpu_owner_last_death_info{pid="18",cause="exit",reason="an illegal memory access",)"
                       R"(signal="",code="79",epoch="0",batch="17"} 1)"));
  CHECK(has_line(page, "penstock_gpu_owner_last_death_timestamp_seconds 1000000000"));
  facts.totals.owner_deaths[0].reason = "no heartbeat for 10 s (suspended)";
  CHECK(metrics_text(facts, "1").find(R"line(cause="exit",reason="no heartbeat for 10 s (suspended)",signal="",code="79",epoch="0",batch="17"} 1)line") != std::string::npos);
}

TEST_CASE("the last 16 quarantined or failed samples are named once each, and released samples are not") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  for (std::uint64_t i = 0; i < 20; ++i) {
    facts.totals.quarantine.push_back({i, std::nullopt, 3, {"SIGSEGV", "hang"}, false, i == 19});
    facts.totals.failures.push_back({i % 18, "cats/" + std::to_string(i % 18), "it is not a picture"});
  }
  const std::string page = metrics_text(facts, "1");
  const auto count = [&page](const std::string& name) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = page.find("\n" + name + "{", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  CHECK(count("penstock_sample_quarantined_info") == telemetry::samples_named_max);
  CHECK(count("penstock_sample_failed_info") == telemetry::samples_named_max);
  CHECK(has_line(page, R"(penstock_sample_quarantined_info{sample="sample 18",index="18",causes="SIGSEGV, hang"} 1)"));
  CHECK_FALSE(has_line(page, R"(penstock_sample_quarantined_info{sample="sample 19",index="19",causes="SIGSEGV, hang"} 1)"));
  CHECK(has_line(page, R"(penstock_sample_failed_info{sample="cats/1",index="1",reason="it is not a picture"} 1)"));
}

TEST_CASE("a session without loader hosts has no series about hosts") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  CHECK(metrics_text(facts, "1").find("penstock_host") == std::string::npos);
}

TEST_CASE("loader hosts are series by name, even after they have left, in a session and in a pool") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  SECTION("a session") {}
  SECTION("a pool") {
    facts.status.jobs.emplace();
  }
  facts.status.hosts_join_at = "0.0.0.0:7077";
  CHECK(has_line(metrics_text(facts, "1"), "penstock_hosts_wait_seconds 0"));
  facts.status.waits_for_hosts = hosts_wait{12.5, 60};
  CHECK(has_line(metrics_text(facts, "1"), "penstock_hosts_wait_seconds 12.5"));
  facts.status.workers.resize(3);
  for (std::uint32_t i = 0; i < 3; ++i) facts.status.workers[i].id = 65 + i;
  for (worker_status& w : facts.status.workers) w.state = child_state::ready;
  facts.status.workers[1].state = child_state::backoff;
  host_status alpha;
  alpha.name = "alpha";
  alpha.workers = {65, 66};
  alpha.round_trip_seconds = 0.25;
  host_status again = alpha;  // with the same name
  again.workers = {67};
  again.round_trip_seconds = 0.125;
  facts.status.hosts = {alpha, again};
  host_record here;
  here.name = "alpha";
  here.here = true;
  here.samples = 800;
  here.bytes = 64000;
  here.cpu_seconds = 1.5;
  host_record gone;
  gone.name = "beta";
  gone.losses = {{"closed", 2}, {"silent", 1}};
  gone.refused.wrong_size = 3;
  facts.status.host_records = {here, gone};
  const std::string page = metrics_text(facts, "1");
  for (const char* line : {R"(penstock_host_up{host="alpha"} 1)", R"(penstock_host_up{host="beta"} 0)",
                           R"(penstock_host_workers{host="alpha",state="ready"} 2)", R"(penstock_host_workers{host="alpha",state="backoff"} 1)",
                           R"(penstock_host_round_trip_seconds{host="alpha"} 0.25)", R"(penstock_host_samples_total{host="alpha"} 800)",
                           R"(penstock_host_received_bytes_total{host="alpha"} 64000)", R"(penstock_host_cpu_seconds_total{host="alpha"} 1.5)",
                           R"(penstock_host_losses_total{host="beta",cause="closed"} 2)", R"(penstock_host_losses_total{host="beta",cause="silent"} 1)",
                           R"(penstock_host_refused_transfers_total{host="beta",kind="wrong_size"} 3)",
                           R"(penstock_host_refused_transfers_total{host="alpha",kind="late"} 0)"}) {
    INFO(line);
    CHECK(has_line(page, line));
  }
}
