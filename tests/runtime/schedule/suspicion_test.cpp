// Deaths, probations and quarantine of samples, one rule per test.
#include "runtime/schedule/suspicion.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;

namespace {

constexpr suspect tom{0, 17};
constexpr suspect tom_later{1, 17};
constexpr suspect ann{0, 4};
constexpr stream_position batch = 3;
constexpr lease_ref lease{{64, 1}, 0, 1};
constexpr lease_ref next_lease{{64, 2}, 0, 2};

/// Two ordinary deaths on different workers: enough to be isolated when max_attempts is 3.
void isolate(suspicion& s, const suspect& who) {
  CHECK_FALSE(s.blame_death(who, batch, false, 0, "SIGSEGV"));
  CHECK_FALSE(s.blame_death(who, batch, false, 1, "SIGBUS"));
  REQUIRE(s.isolated(who));
}

}  // namespace

TEST_CASE("no sample is suspected before a death") {
  const suspicion s(3);
  CHECK(s.attempt_of(tom) == 1);
  CHECK(s.last_workers(tom).empty());
  CHECK_FALSE(s.anybody_isolated());
  CHECK_FALSE(s.next_probation());
}

TEST_CASE("each death counts an attempt and names the worker to avoid") {
  suspicion s(3);
  CHECK_FALSE(s.blame_death(tom, batch, false, 5, "SIGSEGV"));
  CHECK(s.attempt_of(tom) == 2);
  CHECK(s.last_workers(tom) == std::vector<std::uint32_t>{5});
  CHECK_FALSE(s.isolated(tom));
}

TEST_CASE("one attempt before the last, the sample is isolated and waits for its probation") {
  suspicion s(3);
  isolate(s, tom);
  const auto waiting = s.next_probation();
  REQUIRE(waiting);
  CHECK(waiting->who == tom);
  CHECK(waiting->position == batch);
  CHECK(waiting->attempt == 3);
  s.begin_probation(tom, lease);
  CHECK_FALSE(s.next_probation());
  CHECK(s.probation_under(lease)->who == tom);
  CHECK(s.anybody_isolated());
}

TEST_CASE("with one attempt allowed, the first death quarantines the sample without a probation") {
  suspicion s(1);
  const auto lost = s.blame_death(tom, batch, false, 0, "hang");
  REQUIRE(lost);
  CHECK(lost->attempts == 1);
  CHECK(s.is_quarantined(17));
  CHECK_FALSE(s.anybody_isolated());
}

TEST_CASE("a death in the probation quarantines the sample with every cause, oldest first") {
  suspicion s(3);
  isolate(s, tom);
  s.begin_probation(tom, lease);
  const auto lost = s.blame_death(tom, batch, true, 64, "exit 3");
  REQUIRE(lost);
  CHECK(lost->position == batch);
  CHECK(lost->sample == 17);
  CHECK(lost->attempts == 3);
  CHECK(lost->causes == std::vector<std::string>{"SIGSEGV", "SIGBUS", "exit 3"});
  CHECK_FALSE(s.anybody_isolated());
}

TEST_CASE("a sample that loads alone is no longer a suspect") {
  suspicion s(3);
  isolate(s, tom);
  s.begin_probation(tom, lease);
  CHECK(s.clear(lease)->who == tom);
  CHECK(s.attempt_of(tom) == 1);
  CHECK(s.last_workers(tom).empty());
  CHECK_FALSE(s.anybody_isolated());
  CHECK_FALSE(s.clear(lease));  // doing it twice changes nothing
}

TEST_CASE("a sample that was cleared twice and kills again is quarantined without a third probation") {
  suspicion s(3);
  for (int i = 0; i < 2; ++i) {
    isolate(s, tom);
    s.begin_probation(tom, lease);
    s.clear(lease);
  }
  CHECK_FALSE(s.blame_death(tom, batch, false, 0, "SIGSEGV"));
  const auto lost = s.blame_death(tom, batch, false, 1, "SIGSEGV");
  REQUIRE(lost);
  CHECK(lost->attempts == 2);
}

TEST_CASE("a probation whose worker exits without blame is repeated next") {
  suspicion s(3);
  isolate(s, tom);
  s.begin_probation(tom, lease);
  s.worker_gone({0, 1});
  CHECK_FALSE(s.next_probation());
  s.worker_gone(lease.holder);
  CHECK(s.next_probation()->who == tom);
  CHECK_FALSE(s.clear(lease));
  s.begin_probation(tom, next_lease);
  CHECK(s.probation_under(next_lease)->attempt == 3);
}

TEST_CASE("deaths do not count in the next epoch, and a quarantine ends the probations of all epochs") {
  suspicion s(3);
  isolate(s, tom);
  CHECK(s.attempt_of(tom_later) == 1);
  isolate(s, tom_later);
  s.begin_probation(tom, lease);
  CHECK(s.blame_death(tom, batch, true, 64, "SIGSEGV"));
  CHECK_FALSE(s.anybody_isolated());
  // A lease of the next epoch was in progress: its death is recorded, but the quarantine is not reported
  // again.
  CHECK_FALSE(s.blame_death(tom_later, batch, false, 2, "SIGSEGV"));
}

TEST_CASE("samples that cannot be tried alone are all quarantined, with the reason") {
  suspicion s(3);
  isolate(s, ann);
  isolate(s, tom);
  s.begin_probation(ann, lease);
  const auto lost = s.quarantine_isolated("worker 64 ended with exit 3");
  REQUIRE(lost.size() == 2);
  CHECK(lost[0].sample == 4);
  CHECK(lost[1].sample == 17);
  CHECK(lost[1].attempts == 2);
  CHECK(lost[1].causes.back() == "could not be tried alone: worker 64 ended with exit 3");
  CHECK_FALSE(s.anybody_isolated());
  CHECK_FALSE(s.clear(lease));
  CHECK(s.quarantine_isolated("again").empty());
}

TEST_CASE(
    "a released sample has a clean history, and releasing a sample that is not in quarantine changes nothing") {
  suspicion s(3);
  isolate(s, ann);
  s.release(4);
  CHECK(s.next_probation()->attempt == 3);
  isolate(s, tom);
  s.quarantine_isolated("no worker");
  s.release(17);
  CHECK_FALSE(s.is_quarantined(17));
  CHECK(s.is_quarantined(4));
  CHECK(s.attempt_of(tom) == 1);
}

TEST_CASE("the end of an epoch clears its suspects, but not the quarantine") {
  suspicion s(3);
  s.quarantine_known(9);
  isolate(s, tom);
  isolate(s, tom_later);
  s.forget_epochs_before(1);
  CHECK_FALSE(s.isolated(tom));
  CHECK(s.isolated(tom_later));
  s.forget_suspects();
  CHECK_FALSE(s.anybody_isolated());
  CHECK(s.attempt_of(tom_later) == 1);
  CHECK(s.is_quarantined(9));
}

TEST_CASE("a sample's causes are those of its recorded deaths, oldest first") {
  suspicion s(3);
  CHECK(s.causes_of(tom).empty());
  isolate(s, tom);
  CHECK(s.causes_of(tom) == std::vector<std::string>{"SIGSEGV", "SIGBUS"});
  s.begin_probation(tom, lease);
  s.clear(lease);
  CHECK(s.causes_of(tom).empty());
}

TEST_CASE("forgetting a suspect removes every trace of it, whether it was isolated, tried or quarantined") {
  suspicion s(3);
  isolate(s, tom);
  isolate(s, ann);
  s.begin_probation(ann, lease);
  CHECK(s.blame_death(ann, batch, true, 64, "SIGSEGV"));
  CHECK(s.suspects() == 2);
  s.forget(tom);
  s.forget(ann);
  CHECK(s.suspects() == 0);
  CHECK(s.quarantined().empty());
  CHECK_FALSE(s.anybody_isolated());
  CHECK(s.attempt_of(tom) == 1);
  s.forget(tom);  // doing it twice changes nothing
}
