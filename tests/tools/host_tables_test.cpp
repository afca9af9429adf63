// What `penstock status` and `penstock top` show about loader hosts, from a session's answers.
#include "tools/penstock/watch/host_tables.hpp"

#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/watch/session_tables.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

using namespace penstock;

namespace {

session_status with_hosts(std::size_t hosts) {
  session_status s;
  s.session = "photos";
  s.state = session_state::ok;
  s.hosts_join_at = "0.0.0.0:7077";
  for (std::size_t i = 0; i < hosts; ++i) {
    host_status& h = s.hosts.emplace_back();
    h.name = "loader-" + std::to_string(i + 10);
    h.address = "10.0.0.7:41234";
    h.state = "ready";
    h.samples_per_second = 1234;
    h.bytes_per_second = 185.7e6;
    h.round_trip_seconds = 0.00021;
    h.cpu_cores = 7.93;
    for (std::uint32_t w = 0; w < 2; ++w) {
      worker_status& worker = s.workers.emplace_back();
      worker.id = static_cast<std::uint32_t>(65 + 2 * i + w);
      worker.state = child_state::ready;
      h.workers.push_back(worker.id);
    }
  }
  return s;
}

std::string section(const session_status& s, std::size_t width = 80) {
  return cli::hosts_for_people(telemetry::as_json(s), width);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
  return most;
}

}  // namespace

TEST_CASE("a session without loader hosts does not mention them") {
  session_status s;
  s.session = "photos";
  CHECK(section(s).empty());
  CHECK(cli::host_lines(telemetry::as_json(s), 10, 80).empty());
  CHECK_FALSE(telemetry::as_json(s).contains("hosts_lost"));
}

TEST_CASE("the status shows each host with its workers, rates, round trip and cores in 80 columns") {
  session_status s = with_hosts(2);
  s.workers[1].state = child_state::backoff;
  const std::string text = section(s);
  INFO(text);
  CHECK(has(text, "hosts join at 0.0.0.0:7077\n"));
  CHECK(has(text, "host       state  workers  samples/s  MiB/s    trip  cores  address\n"));
  CHECK(has(text, "loader-10  ready      1/2       1234    177  210 us    7.9  10.0.0.7:41234\n"));
  CHECK(has(text, "loader-11  ready      2/2 "));
  CHECK(widest(text) <= 80);
  CHECK(widest(section(s, 50)) <= 50);
  CHECK(has(cli::status_for_people(telemetry::as_json(s), {}, 80), text));
}

TEST_CASE("a session that has ended shows no hosts") {
  session_status s = with_hosts(2);
  nlohmann::ordered_json ended = telemetry::as_json(s);
  ended["state"] = "ended";
  CHECK(cli::hosts_for_people(ended, 80).empty());
}

TEST_CASE("a host whose cores and round trip are not known yet shows dashes") {
  session_status s = with_hosts(1);
  s.hosts[0].cpu_cores.reset();
  s.hosts[0].round_trip_seconds = 0;
  CHECK(has(section(s), "177     -      -  10.0.0.7:41234"));
}

TEST_CASE(
    "a session that waits for its first host shows for how long, and where it listens or which hosts it connects to") {
  session_status s = with_hosts(0);
  s.waits_for_hosts = hosts_wait{12.4, 60};
  CHECK(section(s) == "hosts join at 0.0.0.0:7077; waiting for a loader host for 12 s, at most 60 s\n");
  CHECK(cli::host_lines(telemetry::as_json(s), 4, 0).at(0) ==
        "hosts    waiting for a loader host for 12 s, at most 60 s; hosts join at 0.0.0.0:7077");
  s.hosts_join_at.clear();
  s.hosts_called = {"loader-1:7077", "loader-2:7077"};
  CHECK(section(s, 0) == "calling loader-1:7077 and loader-2:7077; waiting for a loader host for 12 s, at most 60 s\n");
  CHECK(widest(section(s)) == 80);
  s.hosts_called.push_back("loader-3:7077");
  s.waits_for_hosts.reset();
  CHECK(section(s) == "calling loader-1:7077 and 2 others\n");
  CHECK(cli::host_lines(telemetry::as_json(s), 4, 0).at(0) == "hosts    none: calling loader-1:7077 and 2 others");
}

TEST_CASE("lost hosts are named with the reason, the latest first, and the others are counted") {
  session_status s = with_hosts(0);
  for (int i = 0; i < 5; ++i) {
    host_record& lost = s.host_records.emplace_back();
    lost.name = "beta-" + std::to_string(i);
    lost.address = "10.0.0.8:1";
    lost.lost_why = "it was silent for 5 s";
    lost.lost_seconds = 100 - 10 * i;
  }
  s.host_records.emplace_back().name = "left";
  const std::string text = section(s);
  INFO(text);
  CHECK(has(text, "\nlost: beta-4 (10.0.0.8:1) 60 s ago: it was silent for 5 s\nlost: beta-3 "));
  CHECK(has(text, "\nlost: 2 hosts more\n"));
  CHECK_FALSE(has(text, "left"));
}

TEST_CASE("top shows as many hosts as fit, unhealthy ones first, and sums up the rest") {
  session_status s = with_hosts(100);
  s.hosts[70].state = "draining";
  s.workers[2 * 80].state = child_state::starting;
  const auto lines = cli::host_lines(telemetry::as_json(s), 4, 80);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].starts_with("host "));
  CHECK(lines[1].starts_with("loader-80 "));
  CHECK(lines[2].starts_with("loader-90 "));
  CHECK(lines[3] == "98 other hosts: 196/196 workers, 120932 samples/s, 17356 MiB/s");
  CHECK(cli::host_lines(telemetry::as_json(s), 2, 80) == std::vector<std::string>{"100 hosts: 199/200 workers, 123400 samples/s, 17710 MiB/s"});
  CHECK(cli::host_lines(telemetry::as_json(s), 0, 80).empty());
  CHECK(cli::host_lines(telemetry::as_json(with_hosts(3)), 4, 80).size() == 4);
}

TEST_CASE("the hosts of a pool show jobs per second") {
  session_status s = with_hosts(1);
  s.jobs.emplace();
  CHECK(has(section(s), "jobs/s"));
  CHECK_FALSE(has(section(s), "samples/s"));
  CHECK(has(cli::host_lines(telemetry::as_json(s), 1, 80).at(0), "1234 jobs/s"));
}
