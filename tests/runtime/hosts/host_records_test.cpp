#include "runtime/hosts/host_records.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

const steady_time early{24h};

host_card host_named(std::uint64_t process, const std::string& name = "alpha") {
  return {name, "10.0.0.7:4711", 12, process};
}

}  // namespace

TEST_CASE("a host's totals are kept under its name when it leaves and comes back as another process") {
  host_records records;
  records.came(host_named(7));
  records.received(host_named(7), 8, 800);
  records.refused(host_named(7), bad_transfer::late);
  records.went(host_named(7), loss_cause::silent, "it was silent for 5 s", early);
  const auto lost = records.all(early + 12s).at(0);
  CHECK(lost.name == "alpha");
  CHECK_FALSE(lost.here);
  CHECK(lost.lost_seconds == 12.0);
  CHECK(lost.lost_why == "it was silent for 5 s");
  records.came(host_named(8));
  records.received(host_named(8), 2, 200);
  const auto back = records.all(early + 20s).at(0);
  CHECK(back.here);
  CHECK_FALSE(back.lost_seconds);
  CHECK(back.samples == 10);
  CHECK(back.bytes == 1000);
  CHECK(back.losses == std::map<std::string, std::uint64_t>{{"closed", 0}, {"damaged", 0}, {"silent", 1}});
  CHECK(back.refused.late == 1);
  CHECK(back.refused.damaged == 0);
}

TEST_CASE("a host that leaves does not count as lost, nor does one whose name another connected process has") {
  host_records records;
  records.came(host_named(7));
  records.came(host_named(8));
  records.went(host_named(7), loss_cause::closed, "it was closed", early);
  CHECK(records.all(early).at(0).here);
  CHECK_FALSE(records.all(early).at(0).lost_seconds);
  records.went(host_named(8), std::nullopt, "", early);
  CHECK_FALSE(records.all(early).at(0).here);
  CHECK_FALSE(records.all(early).at(0).lost_seconds);
  CHECK(records.all(early).at(0).losses.at("closed") == 1);
}

TEST_CASE("the cores that a host uses are the sum over its connections in the last 10 s") {
  host_records records;
  records.came(host_named(7));
  CHECK_FALSE(records.cores_of(host_named(7)));
  for (int second = 0; second < 30; ++second) {
    const steady_time now = early + std::chrono::seconds(second);
    // One connection uses a core and a half until the 15th second, the other one half a core.
    records.used(host_named(7), 1, 1500ms * std::min(second, 15), now);
    records.used(host_named(7), 2, 500ms * second, now);
    if (second == 14) CHECK(*records.cores_of(host_named(7)) == Catch::Approx(2.0));
  }
  CHECK(*records.cores_of(host_named(7)) == Catch::Approx(0.5));
  CHECK(records.all(early).at(0).cpu_seconds == Catch::Approx(22.5 + 14.5));
}

TEST_CASE("a count that restarts from zero, or arrives after its process has ended, adds no negative time") {
  host_records records;
  records.came(host_named(7));
  records.used(host_named(7), 1, 5s, early);
  records.used(host_named(7), 1, 1s, early + 1s);
  CHECK(records.all(early).at(0).cpu_seconds == Catch::Approx(5));
  records.went(host_named(7), std::nullopt, "", early + 2s);
  records.used(host_named(7), 1, 2s, early + 3s);
  CHECK_FALSE(records.cores_of(host_named(7)));
}

TEST_CASE("the number of names is bounded, and those of connected hosts are kept") {
  host_records records;
  records.came(host_named(1, "stays"));
  for (std::uint64_t i = 2; i < 2000; ++i) {
    records.came(host_named(i, "host-" + std::to_string(i)));
    records.went(host_named(i, "host-" + std::to_string(i)), std::nullopt, "", early);
  }
  const auto all = records.all(early);
  CHECK(all.size() <= 512);
  CHECK(all.back().name == "stays");
}
