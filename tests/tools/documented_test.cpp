// docs/json.md names all fields and kinds that scripts read.
#include "runtime/telemetry/report_json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

using namespace penstock;

namespace {

std::string document() {
  std::ifstream file(PENSTOCK_JSON_MD);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("docs/json.md explains every kind of event") {
  const std::string text = document();
  for (int i = 0;; ++i) {
    const auto kind = static_cast<event_kind>(i);
    const std::string name = name_of(kind);
    if (name == "run_failed" && kind != event_kind::run_failed) break;  // beyond the last kind
    INFO(name);
    CHECK(text.find("`" + name + "`") != std::string::npos);
  }
}

TEST_CASE("docs/json.md explains every field of status") {
  const std::string text = document();
  session_status s;
  s.jobs = pool_statistics{};
  s.group = group_status{};
  s.workers.emplace_back();
  s.hosts.emplace_back();
  s.limits.hosts = "needed";
  const auto status = telemetry::as_json(s);
  const auto check = [&](const nlohmann::ordered_json& fields) {
    for (const auto& [name, value] : fields.items()) {
      INFO(name);
      CHECK((name == "schema" || text.find("`" + name + "`") != std::string::npos));
    }
  };
  check(status);
  check(status.at("gpu"));
  check(status.at("workers")[0]);
  check(status.at("hosts")[0]);
  check(status.at("limits"));
}

TEST_CASE("docs/json.md explains every field of a death") {
  const std::string text = document();
  death_report of_a_job;
  of_a_job.job = 17;
  for (const auto& death : {telemetry::as_json(of_a_job), telemetry::as_json(owner_death_report{})}) {
    for (const auto& [name, value] : death.items()) {
      INFO(name);
      CHECK(text.find("`" + name + "`") != std::string::npos);
    }
  }
}
