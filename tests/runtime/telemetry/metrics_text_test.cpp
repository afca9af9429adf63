// The page of metrics, from made-up facts.
#include "runtime/telemetry/metrics_text.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using telemetry::metrics_text;

namespace {

bool has_line(const std::string& page, const std::string& line) {
  return page.find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("a stall is a gauge of its seconds by what is waited for, of a session and of a pool") {
  telemetry::metrics_facts facts;
  facts.status.state = "ok";
  facts.stages.resize(stage_spans().size());
  SECTION("a session") {}
  SECTION("a pool") {
    facts.status.jobs.emplace();
  }
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_stalled_seconds{waits_for="worker"} 0)"));
  facts.status.stalled = stall_report{"worker", "waiting for worker/0, which is starting", 8.5, 0};
  const std::string page = metrics_text(facts, "1");
  CHECK(has_line(page, R"(penstock_stalled_seconds{waits_for="worker"} 8.5)"));
  CHECK(has_line(page, R"(penstock_stalled_seconds{waits_for="gpu"} 0)"));
}

TEST_CASE("while the stream is stalled a series names the worker and its sample, and otherwise there is none") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.status.workers.resize(2);
  facts.status.workers[1].id = 1;
  facts.status.workers[1].current_sample = "cats/\"tom\".jpg";
  CHECK(metrics_text(facts, "1").find("penstock_stall_info{") == std::string::npos);
  facts.status.stalled = stall_report{"sample", "waiting for worker/1", 8.5, 1};
  CHECK(has_line(metrics_text(facts, "1"),
                 R"(penstock_stall_info{waits_for="sample",worker="1",sample="cats/\"tom\".jpg"} 1)"));
  facts.status.stalled = stall_report{"gpu", "waiting for the GPU owner", 8.5, {}};
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_stall_info{waits_for="gpu",worker="",sample=""} 1)"));
}

TEST_CASE("the share of each limit is a gauge") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.limits.share[static_cast<std::size_t>(telemetry::limit::wire)] = 0.25;
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_limit_share{limit="wire"} 0.25)"));
  CHECK(has_line(metrics_text(facts, "1"), R"(penstock_limit_share{limit="decode"} 0)"));
}

TEST_CASE("the sacrificial worker is no stopped worker while it is not needed") {
  telemetry::metrics_facts facts;
  facts.stages.resize(stage_spans().size());
  facts.status.workers.resize(2);
  facts.status.workers[0].state = "ready";
  facts.status.workers[1].id = 64;
  facts.status.workers[1].state = "stopped";
  facts.status.workers[1].why_stopped = "not needed";
  const std::string page = metrics_text(facts, "1");
  CHECK(page.find("\"stopped\"}") == page.find("cause=\"stopped\"}") + 6);
  CHECK(page.find("worker=\"64\"") == std::string::npos);
}
