// The books of a group, one story each. group_model_test.cpp tries everything at once.
#include "runtime/group/group_book.hpp"

#include "runtime/group/member_book.hpp"

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <set>

using namespace penstock;
using namespace penstock::group;
using namespace std::chrono_literals;

namespace {

/// A group on links that lose nothing. Rank r is process 100 + r, or what replaced it.
struct small_group {
  explicit small_group(std::uint32_t ranks, bool waits = false, bool communicator = false) {
    settings.world_size = ranks;
    settings.process = 100;
    settings.waits_for_lost = waits;
    settings.communicator = communicator;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      member_settings m;
      m.card.rank = r;
      m.card.world_size = ranks;
      m.card.process = 100 + r;
      m.card.host = "host" + std::to_string(r);
      m.card.pid = static_cast<std::int32_t>(1000 + r);
      m.card.settings = {{"sampler.seed", "1"}};
      m.waits_for_lost = waits;
      m.communicator = communicator;
      cards.push_back(m);
    }
    members.resize(ranks);
    ends.resize(ranks);
    book = std::make_unique<group_book>(settings, now);
  }

  void start(std::uint32_t rank, std::uint64_t steps = 0) {
    members[rank] = std::make_unique<member_book>(cards[rank], steps, now);
    ends[rank].reset();
  }
  void start_all() {
    for (std::uint32_t r = 0; r < settings.world_size; ++r) start(r);
  }
  /// Everything that is said is heard, for so long.
  void run(nanoseconds time = 0ns) {
    const steady_time until = now + time;
    do {
      for (int i = 0; i < 4; ++i) turn();
      now += std::min<nanoseconds>(100ms, std::max<nanoseconds>(until - now, 1ns));
    } while (now < until);
  }
  /// With one more process that reports, and hears nothing.
  void run_beside(member_book& another, nanoseconds time) {
    for (const steady_time until = now + time; now < until; run(100ms)) {
      for (member_command& c : another.advance(now)) {
        if (auto* report = std::get_if<send_report>(&c)) book->heard(report->report, now);
      }
    }
  }
  void describe(const std::string& fingerprint = "abc") {
    for (auto& m : members) {
      if (m) m->described({fingerprint, 0, 0});
    }
    run();
  }
  void deliver(std::uint32_t rank, std::uint64_t batches = 1) {
    for (std::uint64_t i = 0; i < batches; ++i) {
      REQUIRE(members[rank]->may_hand_out(now));
      members[rank]->delivered(members[rank]->steps() + 1);
    }
  }
  void kill(std::uint32_t rank) {
    members[rank].reset();
    if (rank == 0) {
      book.reset();
    } else {
      book->gone(cards[rank].card.process, "killed by SIGKILL", now);
    }
  }
  /// The next process of a rank; of rank 0 with an empty book.
  void replace(std::uint32_t rank, std::uint64_t steps = 0) {
    cards[rank].card.process += 1000;
    ++cards[rank].card.starts;
    if (rank == 0) {
      settings.process = cards[0].card.process;
      book = std::make_unique<group_book>(settings, now);
    }
    start(rank, steps);
  }
  [[nodiscard]] std::vector<std::uint32_t> handing_out() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = 0; r < members.size(); ++r) {
      if (members[r] && members[r]->may_hand_out(now)) ranks.push_back(r);
    }
    return ranks;
  }
  [[nodiscard]] bool all_failed_with(const std::string& words) const {
    for (std::uint32_t r = 0; r < members.size(); ++r) {
      if (!members[r]) continue;
      if (!ends[r] || ends[r]->how != group_outcome::failed || !ends[r]->cause) return false;
      if (ends[r]->cause->cause.find(words) == std::string::npos) return false;
    }
    return true;
  }

  void turn() {
    for (std::uint32_t r = 0; r < members.size(); ++r) {
      if (!members[r]) continue;
      for (member_command& c : members[r]->advance(now)) {
        if (auto* report = std::get_if<send_report>(&c)) {
          if (book && !cut.contains(r)) book->heard(report->report, now);
        } else if (auto* make = std::get_if<make_communicator>(&c)) {
          made.push_back({r, make->number});
          members[r]->communicator_made(make->number);
        } else if (auto* abort = std::get_if<abort_communicator>(&c)) {
          aborted.push_back({r, abort->number});
          members[r]->communicator_aborted(abort->number);
        } else {
          ends[r] = std::get<end_rank>(c);
        }
      }
    }
    if (!book) return;
    for (group_command& c : book->advance(now)) {
      if (auto* draw = std::get_if<draw_communicator_id>(&c)) book->communicator_id(draw->number, "id");
      auto* send = std::get_if<send_order>(&c);
      for (std::uint32_t r = 0; send != nullptr && r < members.size(); ++r) {
        if (members[r] && cards[r].card.process == send->process && !cut.contains(r))
          members[r]->heard(send->order, now);
      }
    }
  }

  group_settings settings;
  std::vector<member_settings> cards;
  std::vector<std::unique_ptr<member_book>> members;
  std::vector<std::optional<end_rank>> ends;
  std::unique_ptr<group_book> book;
  std::set<std::uint32_t> cut;  // ranks whose link carries nothing
  std::vector<std::pair<std::uint32_t, std::uint64_t>> made;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> aborted;
  steady_time now{1h};
};

using ranks = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("nobody hands out before all ranks are there and have described the same dataset") {
  small_group g(3);
  g.start(0);
  g.start(2);
  g.run(5s);
  CHECK(g.handing_out().empty());
  CHECK(g.book->missing() == ranks{1});
  g.start(1);
  g.run();
  CHECK(g.book->view().phase == group_phase::describing);
  CHECK(g.handing_out().empty());
  g.describe();
  CHECK(g.handing_out() == ranks{0, 1, 2});
  CHECK(g.book->view().generation == 1);
  CHECK(g.members[2]->incarnation() == 1);
}

TEST_CASE("ranks that disagree all fail within five seconds and name both ranks and both values") {
  small_group g(3);
  SECTION("in a setting") {
    g.cards[2].card.settings = {{"sampler.seed", "7"}};
    g.start_all();
    g.run(5s);
    CHECK(
        g.all_failed_with("sampler.seed is 1 at rank 0 (host0, pid 1000) and 7 at rank 2 (host2, pid 1002)"));
  }
  SECTION("in the world size") {
    g.cards[1].card.world_size = 4;
    g.start_all();
    g.run(5s);
    CHECK(g.all_failed_with("the world size is 3 at rank 0 (host0, pid 1000) and 4 at rank 1"));
  }
  SECTION("in the version of the protocol") {
    g.cards[0].card.protocol = 8;
    g.cards[1].card.protocol = 9;
    g.start_all();
    g.run(5s);
    CHECK(g.all_failed_with("protocol is 8 at rank 0 (host0, pid 1000) and 9 at rank 1"));
  }
  SECTION("in the GPU that is theirs") {
    g.cards[0].card.device = g.cards[1].card.device = "GPU-1";
    g.start_all();
    g.run(5s);
    CHECK(
        g.all_failed_with("rank 0 (host0, pid 1000) and rank 1 (host1, pid 1001) have the same GPU, GPU-1"));
  }
  SECTION("in the dataset") {
    g.start_all();
    g.run();
    g.members[1]->described({"xyz", 0, 0});
    g.members[0]->described({"abc", 0, 0});
    g.run(5s);
    CHECK(g.all_failed_with("the dataset is abc from position 0 of epoch 0 at rank 0"));
    CHECK(g.all_failed_with("xyz from position 0 of epoch 0 at rank 1"));
  }
  SECTION("in the place where they begin") {
    g.start_all();
    g.run();
    g.members[0]->described({"abc", 0, 0});
    g.members[2]->described({"abc", 0, 80});
    g.run(5s);
    CHECK(g.all_failed_with("from position 80 of epoch 0 at rank 2"));
  }
  SECTION("in who is rank 1") {
    g.start(0);
    g.start(1);
    g.run(3s);
    member_settings other = g.cards[1];
    other.card.process = 77;
    other.card.pid = 4711;
    member_book twin(other, 0, g.now);
    g.run_beside(twin, 6s);
    g.run(5s);
    CHECK(g.all_failed_with("rank 1 was started twice: pid 1001 on host1 and pid 4711 on host1"));
  }
  CHECK(g.book->view().outcome == group_outcome::failed);
}

TEST_CASE("GPUs that are shared on purpose may be shared") {
  small_group g(2);
  for (member_settings& m : g.cards) {
    m.card.device = "GPU-1";
    m.card.shares_device = true;
  }
  g.start_all();
  g.run();
  CHECK(g.book->view().phase == group_phase::describing);
}

TEST_CASE("a rank that does not arrive is named, with who has") {
  small_group g(3);
  g.start(0);
  g.start(2);
  g.run(125s);
  CHECK(g.all_failed_with(
      "rank 1 did not arrive within 2m; arrived: rank 0 (host0, pid 1000), rank 2 (host2, pid 1002)"));
}

TEST_CASE("a rank that was started twice is named also when the time to arrive is short") {
  small_group g(3);
  g.settings.join_timeout = 2s;
  g.book = std::make_unique<group_book>(g.settings, g.now);
  g.start(0);
  g.start(1);
  g.run(500ms);
  member_settings other = g.cards[1];
  other.card.process = 77;
  other.card.pid = 4711;
  member_book twin(other, 0, g.now);
  g.run_beside(twin, 2s);
  CHECK(
      g.all_failed_with("rank 1 was started twice: pid 1001 on host1 and pid 4711 on host1; "
                        "rank 2 did not arrive within 2s; arrived: rank 0"));
}

TEST_CASE("a rank that fails at its start ends the start of all, and all report its cause") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.members[2]->fail("out of device memory");
  g.run(5s);
  CHECK(g.all_failed_with("out of device memory"));
  CHECK(g.ends[0]->cause == group_cause{2, "host2", 1002, "out of device memory"});
}

TEST_CASE("a rank that arrives when the start has just failed is told why before the coordinator goes") {
  small_group g(3);
  g.start(0);
  g.start(1);
  g.run(1s);
  g.members[1]->fail("out of device memory");
  g.run(1s);
  CHECK_FALSE(g.book->may_leave());
  SECTION("it arrives in time") {
    g.start(2);
    g.run(1s);
    REQUIRE(g.ends[2]);
    CHECK(g.ends[2]->cause->cause == "out of device memory");
    CHECK(g.book->may_leave());
  }
  SECTION("it does not arrive") {
    g.run(4s);
    CHECK(g.book->may_leave());
  }
}

TEST_CASE("under fail the loss of a rank ends all with that cause, and the first one counts") {
  small_group g(4);
  g.start_all();
  g.run();
  g.describe();
  g.kill(2);
  g.kill(3);
  g.run(5s);
  CHECK(g.all_failed_with("killed by SIGKILL"));
  CHECK(g.ends[0]->cause->rank == 2);
  CHECK(g.book->may_leave());
}

TEST_CASE("under wait the others go on, and the next process of a lost rank takes its place") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  g.deliver(1, 5);
  g.run();
  g.kill(1);
  g.run(1s);
  CHECK(g.handing_out() == ranks{0, 2});
  g.replace(1, 4);
  g.run();
  CHECK(g.handing_out() == ranks{0, 2});
  g.members[1]->described({"abc", 0, 16});
  g.run();
  CHECK(g.handing_out() == ranks{0, 1, 2});
  CHECK(g.members[1]->incarnation() == 2);
  CHECK(g.book->view().incarnations == ranks{1, 2, 1});
}

TEST_CASE("a lost rank that does not come back fails the group after rejoin_timeout") {
  small_group g(2, true);
  g.start_all();
  g.run();
  g.describe();
  g.kill(1);
  g.run(590s);
  CHECK_FALSE(g.ends[0]);
  g.run(15s);
  CHECK(g.all_failed_with("killed by SIGKILL, and not back within 10m"));
}

TEST_CASE(
    "a rank that is cut off stops before anybody takes it for lost, and goes on if it was not replaced") {
  small_group g(2, true);
  g.start_all();
  g.run();
  g.describe();
  g.cut.insert(1);
  while (g.members[1]->may_hand_out(g.now)) {
    CHECK(g.book->missing().empty());
    g.run(100ms);
  }
  g.run(5s);
  CHECK(g.book->missing() == ranks{1});
  g.cut.clear();
  g.run(2s);
  CHECK(g.handing_out() == ranks{0, 1});
  CHECK(g.members[1]->incarnation() == 1);
}

TEST_CASE("a rank that was replaced while it was cut off ends") {
  small_group g(2, true);
  g.start_all();
  g.run();
  g.describe();
  g.cut.insert(1);
  g.run(12s);
  auto cut_off = std::move(g.members[1]);
  g.cut.clear();
  g.cards[1].card.process = 77;
  g.start(1);
  g.run();
  CHECK(g.members[1]->incarnation() == 2);
  std::optional<end_rank> end;
  for (member_command& c : cut_off->advance(g.now)) {
    if (auto* report = std::get_if<send_report>(&c)) g.book->heard(report->report, g.now);
  }
  for (group_command& c : g.book->advance(g.now)) {
    if (auto* send = std::get_if<send_order>(&c); send != nullptr && send->process == 101)
      cut_off->heard(send->order, g.now);
  }
  for (member_command& c : cut_off->advance(g.now)) {
    if (auto* how = std::get_if<end_rank>(&c)) end = *how;
  }
  REQUIRE(end);
  CHECK(end->cause->cause == "rank 1 (host1, pid 1001) was replaced");
}

TEST_CASE("the next process of rank 0 takes over with what the others know") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  g.kill(1);
  g.replace(1, 3);
  g.run();
  g.members[1]->described({"abc", 0, 0});
  g.run();
  g.kill(0);
  g.run(1s);
  CHECK(g.handing_out() == ranks{1, 2});
  g.replace(0, 7);
  g.run(1s);
  CHECK(g.book->view().generation == 2);
  CHECK(g.book->view().incarnations == ranks{2, 2, 1});
  CHECK(g.book->view().facts->fingerprint == "abc");
  CHECK(g.handing_out() == ranks{1, 2});
  g.members[0]->described({"abc", 0, 0});
  g.run();
  CHECK(g.handing_out() == ranks{0, 1, 2});
}

TEST_CASE("under fail the loss of rank 0 is reported with its host and pid, however it is noticed") {
  small_group g(3);
  g.start_all();
  g.run();
  g.describe();
  g.kill(0);
  SECTION("its process is seen to end") {
    for (const std::uint32_t r : {1U, 2U}) g.members[r]->coordinator_gone("its process has ended");
    g.run();
  }
  SECTION("nothing is heard of it") {
    g.run(11s);
  }
  for (const std::uint32_t r : {1U, 2U}) {
    REQUIRE(g.ends[r]);
    CHECK(in_words(g.ends[r]->cause.value()).starts_with("rank 0 (host0, pid 1000): "));
  }
}

TEST_CASE("a new coordinator does not let a new process go while the one before may still hand out") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  g.cut.insert(1);
  auto cut_off = std::move(g.members[1]);
  g.cut.clear();
  g.kill(0);
  g.replace(0);
  SECTION("where the launcher does not count") {
    g.cards[1].card.process = 77;
    g.start(1);
    while (cut_off->may_hand_out(g.now)) {
      g.run(500ms);
      g.members[0]->described({"abc", 0, 0});
      g.members[1]->described({"abc", 0, 0});
      REQUIRE_FALSE((cut_off->may_hand_out(g.now) && g.members[1]->may_hand_out(g.now)));
    }
    g.run(3s);
    CHECK(g.handing_out() == ranks{0, 1, 2});
  }
  SECTION("but at once where it has ended the one before") {
    g.replace(1);
    g.run(2s);
    g.members[0]->described({"abc", 0, 0});
    g.members[1]->described({"abc", 0, 0});
    g.run();
    CHECK(g.handing_out() == ranks{0, 1, 2});
  }
}

TEST_CASE("a new process of rank 0 hears from the others how the group has ended") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  g.cut.insert(2);
  for (auto& m : g.members) m->stream_ended();
  g.run();
  g.cut.clear();
  for (int i = 0; i < 30 && g.members[1]->view().outcome == group_outcome::none; ++i) {
    g.turn();
    g.now += 100ms;
  }
  REQUIRE(g.members[1]->view().outcome == group_outcome::finished);
  REQUIRE_FALSE(g.ends[1]);
  g.kill(0);
  g.replace(0);
  g.turn();
  g.turn();
  CHECK(g.book->view().outcome == group_outcome::finished);
}

TEST_CASE("the next process of a rank does not go on with another dataset") {
  small_group g(2, true);
  g.start_all();
  g.run();
  g.describe();
  g.kill(1);
  g.replace(1);
  g.run();
  g.members[1]->described({"xyz", 0, 0});
  g.run(2s);
  CHECK(g.handing_out() == ranks{0});
  REQUIRE(g.ends[1]);
  CHECK(g.ends[1]->cause->cause == "its dataset has the fingerprint xyz, that of the group abc");
}

TEST_CASE("a report that comes twice or late changes nothing") {
  small_group g(2);
  g.start_all();
  member_report early;
  for (member_command& c : g.members[1]->advance(g.now)) {
    if (auto* report = std::get_if<send_report>(&c)) early = report->report;
  }
  g.run();
  g.describe();
  g.cut.insert(1);
  for (int i = 0; i < 30; ++i) {
    g.book->heard(early, g.now);
    g.run(500ms);
  }
  CHECK(g.book->view().outcome == group_outcome::failed);  // rank 1 was silent all the time
}

TEST_CASE("a new coordinator that does not know the group yet gives nobody back a right that has lapsed") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  REQUIRE(g.handing_out() == ranks{0, 1, 2});
  g.cut = {1};
  g.run(11s);
  REQUIRE(g.handing_out() == ranks{0, 2});  // another process may have got the rank of the silent one
  g.kill(0);
  g.cut = {2};  // this one could say so
  g.replace(0);
  g.run(3s);
  CHECK(g.handing_out() == ranks{2});
}

TEST_CASE(
    "a place is left by the process that had it before the one that the group knows better gets it back") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  const nanoseconds lost_after = g.settings.lost_after;
  member_report newer;  // it replaced that process under another coordinator
  newer.card = g.cards[1].card;
  newer.card.process = 77;
  newer.incarnation = 2;
  newer.facts = stream_facts{"abc", 0, 0};
  const auto report_for = [&](nanoseconds time) {
    for (nanoseconds passed{0}; passed < time; passed += 1s) {
      ++newer.number;
      g.book->heard(newer, g.now);
      g.run(1s);
    }
  };
  report_for(lost_after - 2s);
  REQUIRE(g.ends[1]);
  CHECK(g.book->missing() == ranks{1});  // a rank that is cut off would still hand out
  report_for(4s);
  CHECK(g.book->missing().empty());
}

TEST_CASE("orders of an earlier coordinator are ignored") {
  small_group g(2, true);
  g.start_all();
  g.run();
  g.describe();
  group_order late;
  late.view = g.book->view();
  late.number = 1'000'000;
  late.view.outcome = group_outcome::failed;
  late.standing = rank_standing::member;
  g.kill(0);
  g.replace(0);
  g.run(2s);
  REQUIRE(g.members[1]->view().generation == 2);
  g.members[1]->heard(late, g.now);
  CHECK(g.members[1]->view().outcome == group_outcome::none);
}

TEST_CASE("a stop freezes all ranks, and all deliver up to the step of the one that is furthest") {
  small_group g(3);
  g.start_all();
  g.run();
  g.describe();
  g.deliver(0, 3);
  g.deliver(1, 5);
  g.deliver(2, 4);
  g.members[2]->want_stop();
  g.run();
  CHECK(g.book->view().limit == 5);
  CHECK(g.handing_out() == ranks{0, 2});
  g.deliver(0, 2);
  g.deliver(2, 1);
  CHECK(g.handing_out().empty());
  g.run(1s);
  for (const auto& end : g.ends) {
    REQUIRE(end);
    CHECK(end->how == group_outcome::stopped);
  }
}

TEST_CASE("a rank that leaves before the others is lost at its step") {
  small_group g(2);
  g.start_all();
  g.run();
  g.describe();
  g.deliver(1, 6);
  g.members[1]->leave();
  g.run(1s);
  REQUIRE(g.ends[0]);
  CHECK(g.ends[0]->cause->cause == "left at step 6");
}

TEST_CASE("a group has finished when all streams are over, and nobody goes before all know") {
  small_group g(2);
  g.start_all();
  g.run();
  g.describe();
  g.members[0]->stream_ended();
  g.run(3s);
  CHECK_FALSE(g.ends[0]);
  g.members[1]->stream_ended();
  g.run(1s);
  CHECK(g.ends[0]->how == group_outcome::finished);
  CHECK(g.ends[1]->how == group_outcome::finished);
  CHECK(g.book->may_leave());
}

TEST_CASE("a rank that is lost when it has delivered everything comes back before the group has finished") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  for (std::uint32_t r = 0; r < 3; ++r) g.deliver(r, 3);
  g.members[1]->stream_ended();
  g.run();
  g.kill(1);
  for (const std::uint32_t r : {0U, 2U}) g.members[r]->stream_ended();
  g.run(1s);
  CHECK(g.book->view().outcome == group_outcome::none);
  CHECK_FALSE(g.book->may_leave());
  g.replace(1, 2);  // its launcher had not heard of the last batch
  g.run();
  g.members[1]->described({"abc", 0, 0});
  g.run();
  CHECK(g.handing_out() == std::vector<std::uint32_t>{1});
  g.deliver(1);
  g.members[1]->stream_ended();
  g.run();
  CHECK(g.book->may_leave());
  for (const auto& end : g.ends) {
    REQUIRE(end);
    CHECK(end->how == group_outcome::finished);
  }
}

TEST_CASE("a rank that is lost when its group has just finished delivers the rest, and nobody waits for it") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  for (std::uint32_t r = 0; r < 3; ++r) {
    g.deliver(r, 3);
    g.members[r]->stream_ended();
  }
  g.cut.insert(1);
  for (const auto& report : g.members[1]->advance(g.now))
    g.book->heard(std::get<send_report>(report).report, g.now);  // its last words
  g.run();
  CHECK(g.book->view().outcome == group_outcome::finished);
  g.kill(1);
  g.cut.clear();
  g.run(1s);
  CHECK_FALSE(g.book->may_leave());  // its next process would find nobody
  g.replace(1, 2);
  g.run();
  CHECK(g.book->may_leave());
  g.book.reset();
  CHECK(g.members[1]->delivers_the_rest());
  g.run(20s);
  CHECK_FALSE(g.ends[1]);
  g.deliver(1);
  g.members[1]->stream_ended();
  g.run(6s);
  REQUIRE(g.ends[1]);
  CHECK(g.ends[1]->how == group_outcome::finished);
}

TEST_CASE(
    "a rank whose process ends unnoticed when it has delivered everything is replaced after the group has "
    "finished") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.describe();
  for (std::uint32_t r = 0; r < 3; ++r) g.deliver(r, 3);
  g.members[1]->stream_ended();
  g.run();
  g.members[1].reset();  // its link does not tell
  const auto replace = [&] {
    g.replace(1, 2);
    g.members[1].reset();
    g.cards[1].card.starts = 0;  // nor does its launcher count
    g.start(1, 2);
  };
  SECTION("its next process comes before the group has finished") {
    replace();
    g.run();
  }
  for (const std::uint32_t r : {0, 2}) g.members[r]->stream_ended();
  SECTION("or after that") {
    g.run();
    replace();
  }
  g.run(1500ms);  // until it reports again
  CHECK(g.book->view().outcome == group_outcome::finished);
  CHECK_FALSE(g.ends[1]);
  CHECK(g.members[1]->delivers_the_rest());
  g.deliver(1);
  g.members[1]->stream_ended();
  g.run(6s);
  for (const auto& end : g.ends) {
    REQUIRE(end);
    CHECK(end->how == group_outcome::finished);
  }
}

TEST_CASE("a process that was replaced does not get its rank back when the group has finished") {
  small_group g(2, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  g.cut = {1};
  g.run(11s);  // lost
  auto first = std::move(g.members[1]);
  const std::uint64_t process = g.cards[1].card.process;
  g.cut.clear();
  g.replace(1);
  g.cards[1].card.starts = 0;  // its launcher does not count
  g.start(1);
  g.run();
  g.describe();
  g.run();
  for (std::uint32_t r = 0; r < 2; ++r) {
    g.deliver(r, 3);
    g.members[r]->stream_ended();
  }
  g.run();
  REQUIRE(g.book->view().outcome == group_outcome::finished);
  for (const auto& command : first->advance(g.now)) {
    if (const auto* report = std::get_if<send_report>(&command)) g.book->heard(report->report, g.now);
  }
  bool refused = false;
  for (const auto& command : g.book->advance(g.now)) {
    const auto* order = std::get_if<send_order>(&command);
    if (order == nullptr || order->process != process) continue;
    refused = order->order.standing == rank_standing::refused;
    first->heard(order->order, g.now);
  }
  CHECK(refused);
  CHECK_FALSE(first->delivers_the_rest());
}

TEST_CASE("a communicator is aborted everywhere when a rank is lost, and made anew with a higher number") {
  small_group g(3, true, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  REQUIRE(g.made.size() == 3);
  const std::uint64_t first = g.made[0].second;
  CHECK(g.members[0]->may_communicate());
  CHECK(g.handing_out() == ranks{0, 1, 2});
  g.kill(1);
  g.run(1s);
  CHECK(g.aborted == std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0, first}, {2, first}});
  CHECK(g.handing_out().empty());  // nobody can take a step alone
  g.replace(1);
  g.run();
  g.members[1]->described({"abc", 0, 0});
  g.run(1s);
  CHECK(g.handing_out() == ranks{0, 1, 2});
  REQUIRE(g.made.size() == 6);
  CHECK(g.made[5].second > first);
}

TEST_CASE(
    "a higher number of another coordinator's communicator breaks the present one, and the next is higher "
    "still") {
  small_group g(3, true, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  REQUIRE(g.made.size() == 3);
  const std::uint64_t first = g.made[0].second;
  member_report stray;  // of a process that was cut off, and had another coordinator meanwhile
  stray.card = g.cards[1].card;
  stray.card.process = 77;
  stray.number = 1;
  stray.view.generation = 1;
  stray.view.coordinator = 55;
  stray.view.communicator = first + 1;
  g.book->heard(stray, g.now);
  g.run(1s);
  CHECK(g.aborted ==
        std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0, first}, {1, first}, {2, first}});
  REQUIRE(g.made.size() == 6);
  CHECK(g.made.back().second > first + 1);
  for (const auto& m : g.members) CHECK(m->may_communicate());
}

TEST_CASE("a rank that has finished and is gone fails a group of common steps, and no other one") {
  for (const bool common : {true, false}) {
    small_group g(2, false, true);
    g.settings.common_steps = common;
    g.book = std::make_unique<group_book>(g.settings, g.now);
    g.start_all();
    g.run();
    g.describe();
    CHECK(g.members[0]->is_in());
    g.members[1]->stream_ended();
    g.run(1s);
    g.kill(1);
    g.run(11s);
    CHECK(g.ends[0].has_value() == common);
    if (common) CHECK(g.all_failed_with("killed by SIGKILL"));
  }
}

TEST_CASE("an asynchronous error of one rank's communicator aborts it on all") {
  small_group g(2, false, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  const std::uint64_t first = g.made.at(0).second;
  g.members[1]->communicator_broken(first, "remote error");
  CHECK_FALSE(g.members[1]->may_communicate());
  g.run(1s);
  CHECK(g.aborted.size() == 2);
  CHECK(g.made.size() == 4);
  CHECK(g.handing_out() == ranks{0, 1});
}

TEST_CASE("a step is agreed when every rank has a snapshot of it, and stays agreed") {
  small_group g(3, true, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  g.members[0]->held({16, 20, 32});
  g.members[1]->held({16, 32});
  g.run();
  CHECK(g.book->view().agreed == 0);
  g.members[2]->held({16, 20});
  g.run();
  CHECK(g.book->view().agreed == 16);
  CHECK(g.members[1]->view().agreed == 16);
  g.members[2]->held({});
  g.run();
  CHECK(g.book->view().agreed == 16);
}

TEST_CASE(
    "while a communicator is made anew nothing is agreed, except what a rank that comes back had "
    "acknowledged") {
  small_group g(2, true, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  g.members[0]->held({16, 32});
  g.run();
  g.kill(1);
  g.run();
  g.replace(1);
  g.members[1]->held({32});
  g.run();
  CHECK(g.book->view().agreed == 0);
  g.members[1]->begins_at(16);
  g.members[1]->held({});
  g.members[1]->described({"abc", 0, 0});
  g.run(1s);
  CHECK(g.book->view().agreed == 16);
  CHECK(g.handing_out() == ranks{0, 1});
}

TEST_CASE("what is agreed is handed out again without a communicator") {
  small_group g(2, true, true);
  g.start_all();
  g.run();
  g.describe();
  g.run();
  for (auto& m : g.members) m->held({16});
  g.run();
  REQUIRE(g.book->view().agreed == 16);
  g.kill(1);
  g.run();
  CHECK(g.members[0]->right()->limit == 16);
  g.members[0]->delivered(16);
  CHECK_FALSE(g.members[0]->right());
}

TEST_CASE("a rank alone is a group") {
  small_group g(1, true, true);
  g.start(0);
  g.run();
  g.describe();
  g.run();
  CHECK(g.handing_out() == ranks{0});
}
