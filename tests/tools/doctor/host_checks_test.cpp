// The rows of `penstock doctor --host`, from made-up facts.
#include "tools/penstock/doctor/checks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <map>
#include <set>
#include <string>

using namespace penstock;
using namespace penstock::doctor;

namespace {

/// A session whose dataset this machine has.
facts joinable() {
  facts f;
  hosts_facts& h = f.hosts.emplace();
  h.address = "trainer:7077";
  h.reached = "10.0.0.7:7077";
  h.who = hosts_facts::peer::session;
  h.encrypted = true;
  h.name = "photos";
  h.version = "0.9.0";
  h.round_trip_seconds = 0.0002;
  h.bytes_per_second = 1.1e9;
  h.clock_ahead_seconds = -0.004;
  h.cores = 16;
  h.data_path = "/mnt/data";
  h.samples = 1000;
  h.fingerprint = "5f1d";
  h.compared = true;
  return f;
}

std::map<std::string, row> host_rows(const facts& f) {
  std::map<std::string, row> rows;
  for (row& r : examine(f)) rows.emplace(r.of->id, std::move(r));
  return rows;
}

struct fault {
  const char* id;
  status becomes;
  const char* says;  ///< text that `observed` or `remedy` must contain
  std::function<void(hosts_facts&)> happens;
};

}  // namespace

TEST_CASE("a machine that can join has no failed row, and only rows about hosts") {
  for (const auto& [id, r] : host_rows(joinable())) {
    INFO(id << ": " << r.observed << r.why);
    CHECK(id.starts_with("host."));
    CHECK(r.is == (id == "host.cores" ? status::info : status::ok));
  }
  const auto rows = host_rows(joinable());
  CHECK(rows.at("host.reach").observed == "10.0.0.7:7077: session photos");
  CHECK(rows.at("host.bandwidth").observed.find("1100 MB/s") != std::string::npos);
  CHECK(rows.at("host.clock").observed == "the clock there is 4 ms behind");
  CHECK(rows.at("host.data").observed == "/mnt/data: 1000 samples");
  CHECK(rows.at("host.cores").observed.find("16 cores here") != std::string::npos);
}

TEST_CASE(
    "each fault between a session and a host fails its own row with a remedy, and skips the rows that it hides") {
  using peer = hosts_facts::peer;
  const std::vector<fault> faults{
      {"host.reach", status::fail, "HOST:PORT", [](hosts_facts& h) { h.address_trouble = "'trainer' is not an address"; h.who = peer::none; }},
      {"host.reach", status::fail, "Connection refused", [](hosts_facts& h) { h.reach_trouble = "connecting: Connection refused"; h.who = peer::none; }},
      {"host.secret", status::fail, "--secret-file", [](hosts_facts& h) { h.secret_trouble = "its secret is different"; h.who = peer::none; }},
      {"host.version", status::fail, "runs penstock 0.8.0", [](hosts_facts& h) { h.version_trouble = "the session runs penstock 0.8.0"; h.who = peer::none; }},
      {"host.round-trip", status::warn, "landing_slots", [](hosts_facts& h) { h.round_trip_seconds = 0.1; }},
      {"host.bandwidth", status::warn, "12 MB/s", [](hosts_facts& h) { h.bytes_per_second = 12e6; }},
      {"host.bandwidth", status::fail, "the connection was closed",
       [](hosts_facts& h) {
         h.measure_trouble = "the connection was closed";
         h.bytes_per_second = 0;
         h.compared = false;
       }},
      {"host.clock", status::warn, "NTP", [](hosts_facts& h) { h.clock_ahead_seconds = 86400; }},
      {"host.data", status::fail, "--data FROM=TO", [](hosts_facts& h) { h.data_trouble = "'/data' does not exist"; h.compared = false; }},
      {"host.fingerprint", status::fail, "999 samples", [](hosts_facts& h) { h.difference = "the host's dataset has 999 samples"; }},
      {"host.fingerprint", status::fail, "python -m penstock", [](hosts_facts& h) { h.program = "Python"; h.compared = false; }},
  };
  const auto before = host_rows(joinable());
  std::set<std::string> broken{"host.cores"};
  for (const fault& one : faults) {
    broken.insert(one.id);
    facts f = joinable();
    one.happens(*f.hosts);
    const auto after = host_rows(f);
    INFO(one.id << ": " << after.at(one.id).observed << "; " << after.at(one.id).remedy);
    CHECK(after.at(one.id).is == one.becomes);
    CHECK((after.at(one.id).observed + after.at(one.id).remedy).find(one.says) != std::string::npos);
    CHECK_FALSE(after.at(one.id).remedy.empty());
    for (const auto& [id, other] : after) {
      if (id == one.id) continue;
      INFO(id << ": " << other.observed << other.why);
      CHECK((other.is == before.at(id).is || (other.is == status::skip && !other.why.empty())));
    }
  }
  for (const check& c : host_checks()) CHECK(broken.contains(std::string(c.id)));
}

TEST_CASE("a listening loader host is asked for no dataset, and a Python session only for versions") {
  facts f = joinable();
  f.hosts->who = hosts_facts::peer::host;
  f.hosts->workers = 8;
  f.hosts->name = "alpha";
  f.hosts->compared = false;
  auto rows = host_rows(f);
  CHECK(rows.at("host.reach").observed == "10.0.0.7:7077: loader host alpha with 8 workers");
  CHECK(rows.at("host.data").is == status::skip);
  CHECK(rows.at("host.fingerprint").is == status::skip);
  CHECK(rows.at("host.cores").observed == "8 workers there");
  f = joinable();
  f.hosts->program = f.hosts->own_program = "Python";
  rows = host_rows(f);
  CHECK(rows.at("host.data").is == status::skip);
  CHECK(rows.at("host.fingerprint").is == status::ok);
}

TEST_CASE("without a secret the row says that any host may join") {
  facts f = joinable();
  f.hosts->encrypted = false;
  CHECK(host_rows(f).at("host.secret").is == status::ok);
  CHECK(host_rows(f).at("host.secret").observed.find("any machine that reaches that port") != std::string::npos);
}
