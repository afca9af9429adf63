#include "tools/penstock/chaos/victim_book.hpp"

#include "runtime/schedule/suspicion.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;
using penstock::cli::victim_book;

namespace {

constexpr victim_book::time start{1000s};

penstock::loader_intensity_config at_most(std::uint32_t deaths) {
  penstock::loader_intensity_config intensity;
  intensity.max = deaths;
  intensity.within = 60s;
  return intensity;
}

}  // namespace

TEST_CASE("a sample whose workers are killed as often as allowed is tried alone and never quarantined") {
  for (const std::uint32_t max_attempts : {2U, 3U, 4U}) {
    victim_book victims(at_most(5), max_attempts);
    penstock::schedule::suspicion ledger(max_attempts);
    std::uint32_t deaths = 0;
    std::uint32_t trials = 0;
    for (std::uint32_t worker = 0; victims.may_be_struck(worker % 2, 7, start) && deaths < 100; ++worker) {
      ++deaths;
      CHECK_FALSE(ledger.blame_death({0, 7}, 1, false, worker % 2, "SIGKILL"));
      victims.worker_died(worker % 2, 7, start);
      if (!ledger.isolated({0, 7})) continue;
      const penstock::lease_ref alone{{64, ++trials}, 0, 1};
      ledger.begin_probation({0, 7}, alone);
      CHECK(ledger.clear(alone));
    }
    CHECK((deaths == max_attempts - 1 && trials == 1));
    CHECK(victims.may_be_struck(0, 8, start));
    CHECK(victims.may_be_struck(0, std::nullopt, start));
  }
}

TEST_CASE("with only one attempt allowed, each sample is hit once") {
  victim_book victims(at_most(5), 1);
  CHECK(victims.may_be_struck(0, 7, start));
  victims.worker_died(0, 7, start);
  CHECK_FALSE(victims.may_be_struck(1, 7, start));
}

TEST_CASE("a place whose intensity allows no further death is spared until the first one has expired") {
  victim_book victims(at_most(2), 3);
  victims.worker_died(0, std::nullopt, start);
  CHECK(victims.may_be_struck(0, std::nullopt, start));
  victims.worker_died(0, std::nullopt, start + 10s);
  CHECK_FALSE(victims.may_be_struck(0, 7, start + 60s));
  CHECK(victims.may_be_struck(1, 7, start + 60s));
  CHECK(victims.may_be_struck(0, 7, start + 61s));
}

TEST_CASE("deaths that are blamed on samples do not count for their place") {
  victim_book victims(at_most(1), 3);
  for (std::uint64_t sample = 0; sample < 10; ++sample) victims.worker_died(0, sample, start);
  CHECK(victims.may_be_struck(0, 11, start));
}
