// The collective operations of a group in a simulated world: ranks that enter them; reports and orders that are lost, late or repeated;
// ranks that restart; and a coordinator that restarts with no knowledge. A failing script is shrunk and printed.
#include "runtime/group/collective_book.hpp"
#include "runtime/group/collective_member.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <deque>
#include <map>
#include <set>

using namespace penstock;
using namespace penstock::group;
using testing::random_choice;
using testing::violation;

namespace {

// clang-format off
enum class act : std::uint8_t { enter, carry_up, carry_down, exchange, repeat, late, lose, restart, take_over, count };
constexpr const char* act_names[] = {"enter", "carry_up", "carry_down", "exchange", "repeat", "late", "lose", "restart", "take_over"};
// clang-format on
using script = testing::script_of<act>;

struct world_settings {
  std::uint32_t ranks = 2;
  std::uint64_t operations = 20;
  bool same_bytes = true;        ///< a rank that enters an operation again passes the same bytes
  bool forgets_results = false;  ///< a planted mistake: a new process repeats no more than it has to
};

struct world_tally {
  std::uint64_t done = 0, restarts = 0, takeovers = 0, repeated = 0, past = 0;
};

collective_kind kind_of(std::uint64_t number) {
  return number % 3 == 0 ? collective_kind::barrier : collective_kind::all_gather;
}

class world {
 public:
  world(const world_settings& settings, world_tally& tally)
      : settings_(settings), tally_(tally), book_(settings.ranks) {
    for (std::uint32_t r = 0; r < settings.ranks; ++r) ranks_.emplace_back(r);
  }

  void perform(testing::step<act> s) {
    if (over_) return;
    rank& r = ranks_[s.pick % settings_.ranks];
    switch (s.what) {
      case act::enter: enter(r); break;
      case act::carry_up: carry_up(r); break;
      case act::carry_down: carry_down(r); break;
      case act::exchange: exchange(); break;
      case act::repeat: repeat(r); break;
      case act::late: hear_late(r); break;
      case act::lose: r.down.clear(); break;
      case act::restart: restart(r, s.pick / settings_.ranks); break;
      case act::take_over: take_over(); break;
      case act::count: break;
    }
    check();
  }

  /// No more faults: every rank finishes, unless the programs are out of step.
  void finish() {
    for (std::uint64_t turn = 0; turn < 4 * settings_.operations + 8 && !over_; ++turn) {
      for (rank& r : ranks_) enter(r);
      exchange();
      check();
    }
    if (over_) return;
    for (const rank& r : ranks_) {
      if (r.member.done() != settings_.operations)
        throw violation{fmt::format("rank {} stays at operation {}", r.number, r.member.done())};
    }
  }

 private:
  struct rank {
    explicit rank(std::uint32_t own) : number(own) {}
    std::uint32_t number = 0;
    std::uint32_t process = 0;  // number of the rank's current process
    collective_member member{0};
    std::uint64_t most_done = 0;  // maximum over the rank's processes
    std::deque<shared_collective_result> down{}, old{};
  };

  [[nodiscard]] std::string value_of(const rank& r, std::uint64_t number) const {
    if (kind_of(number) == collective_kind::barrier) return {};
    return fmt::format("rank {} process {} operation {}", r.number, settings_.same_bytes ? 0 : r.process,
                       number);
  }

  void enter(rank& r) {
    const std::uint64_t next = r.member.done() + 1;
    if (r.member.waits() || next > settings_.operations) return;
    const std::string value = value_of(r, next);
    offered_[next][r.number].insert(value);
    r.member.enter(kind_of(next), value);
  }
  /// The coordinator receives the rank's current report. It never learns of older ones (group_book).
  void carry_up(rank& r) {
    book_.heard(r.number, r.member.report(), false);
    if (auto answer = book_.answer_for(r.number)) r.down.push_back(std::move(answer));
  }
  void carry_down(rank& r) {
    if (r.down.empty()) return;
    take(r, r.down.front());
    r.old.push_back(r.down.front());
    r.down.pop_front();
  }
  void take(rank& r, const shared_collective_result& result) {
    if (!r.member.heard(result)) return;
    ++tally_.done;
    // A different result is no contradiction if no process with the old result is left.
    for (const rank& other : ranks_) {
      const shared_collective_result& theirs = other.member.result();
      if (theirs && theirs->number == result->number && *theirs != *result)
        throw violation{fmt::format("operation {} has two results", result->number)};
    }
    if (result->values.size() != settings_.ranks) throw violation{"a result without a value from each rank"};
    for (std::uint32_t one = 0; one < settings_.ranks; ++one) {
      if (!offered_[result->number][one].contains(result->values[one]))
        throw violation{
            fmt::format("rank {} has not passed the value that operation {} has for it", one, result->number)};
    }
  }
  void exchange() {
    for (rank& r : ranks_) carry_up(r);
    for (rank& r : ranks_) carry_up(r);
    for (rank& r : ranks_) {
      while (!r.down.empty()) carry_down(r);
    }
  }
  void repeat(rank& r) {
    carry_up(r);
    carry_up(r);
    ++tally_.repeated;
  }
  void hear_late(rank& r) {
    if (!r.old.empty()) take(r, r.old.front());
  }
  /// Starts a new process of a rank, with all of its progress or one operation less.
  void restart(rank& r, std::uint32_t pick) {
    r.most_done = std::max(r.most_done, r.member.done());
    const std::uint64_t kept = r.most_done - (r.most_done > 0 && pick % 2 == 0 ? 1 : 0);
    ++tally_.restarts;
    ++r.process;
    r.member = collective_member(settings_.forgets_results ? 0 : kept);
    r.down.clear();
    r.old.clear();
    restarted_ = true;
    book_.replaced(r.number);
  }
  void take_over() {
    ++tally_.takeovers;
    book_ = collective_book(settings_.ranks);
    for (rank& r : ranks_) r.down.clear();
    restart(ranks_[0], 1);
    taken_over_ = true;
  }
  void check() {
    if (const auto& wrong = book_.wrong()) {
      // Only possible if the results, and the bytes for them, were lost with rank 0's process.
      if (!taken_over_ || !restarted_) throw violation{fmt::format("rank {}: {}", wrong->rank, wrong->what)};
      ++tally_.past;
      over_ = true;
    }
    for (const rank& r : ranks_) {
      if (r.member.done() == 0) continue;
      for (std::uint32_t one = 0; one < settings_.ranks; ++one) {
        if (offered_[r.member.done()][one].empty())
          throw violation{
              fmt::format("operation {} ended before rank {} entered it", r.member.done(), one)};
      }
    }
  }

  world_settings settings_;
  world_tally& tally_;
  collective_book book_;
  std::vector<rank> ranks_;
  std::map<std::uint64_t, std::map<std::uint32_t, std::set<std::string>>> offered_;
  bool restarted_ = false;
  bool taken_over_ = false;
  bool over_ = false;
};

script random_script(random_choice& choose) {
  const std::uint32_t calm = 3 + choose.below(20);
  const bool takes_over = choose.below(3) == 0;
  const bool restarts = choose.below(2) == 0;
  script made(200 + choose.below(600));
  for (auto& s : made) {
    s.pick = choose.below(10'000);
    constexpr act work[] = {act::enter,      act::enter,      act::carry_up, act::carry_up,
                            act::carry_down, act::carry_down, act::exchange};
    s.what = work[choose.below(std::size(work))];
    if (choose.below(calm) != 0) continue;
    constexpr act accidents[] = {act::repeat, act::late, act::lose, act::restart, act::take_over};
    s.what = accidents[choose.below(std::size(accidents))];
    if ((s.what == act::take_over && !takes_over) || (s.what == act::restart && !restarts))
      s.what = act::repeat;
  }
  return made;
}

testing::model<act, world_settings> model_that_counts(world_tally& tally) {
  return {.name = "collective model",
          .act_names = act_names,
          .random_script = random_script,
          .random_settings =
              [](random_choice& choose) {
                return world_settings{1 + choose.below(8), 1 + choose.below(60), choose.below(2) == 0, false};
              },
          .describe =
              [](const world_settings& s) {
                return fmt::format("ranks {}, operations {}, same_bytes {}", s.ranks, s.operations,
                                   s.same_bytes);
              },
          .run =
              [&tally](const world_settings& settings, const script& steps) {
                world w(settings, tally);
                for (const auto& s : steps) w.perform(s);
                w.finish();
                return steps.size();
              }};
}

}  // namespace

TEST_CASE("all ranks get the same result of each operation, whatever is lost, late, repeated or restarted") {
  world_tally tally;
  testing::explore(model_that_counts(tally));
  for (const std::uint64_t often : {tally.done, tally.restarts, tally.takeovers, tally.repeated})
    CHECK(testing::is_tried(often, 1000));
  CHECK(tally.past > 0);
  CHECK(tally.past < tally.takeovers);
}

TEST_CASE("the model of collective operations finds a rank that starts over") {
  world_settings planted{3, 40, true, true};
  world_tally tally;
  CHECK(testing::finds_a_mistake(model_that_counts(tally), planted));
}

TEST_CASE("a rank that leaves is named by the ranks that wait for it") {
  collective_book book(2);
  collective_member stays(0);
  stays.enter(collective_kind::barrier, {});
  book.heard(0, stays.report(), false);
  CHECK(book.awaited_by(0) == std::vector<std::uint32_t>{1});
  book.heard(1, collective_report{}, true);
  REQUIRE(book.wrong());
  CHECK(book.wrong()->rank == 1);
  CHECK(book.wrong()->what ==
        "left the group after 0 collective operations, but rank 0 has begun number 1, a barrier");
}

TEST_CASE("two ranks that enter different operations with one number both get an error") {
  collective_book book(2);
  collective_member a(4);
  collective_member b(4);
  a.enter(collective_kind::barrier, {});
  b.enter(collective_kind::all_gather, "x");
  book.heard(0, a.report(), false);
  book.heard(1, b.report(), false);
  REQUIRE(book.wrong());
  CHECK(book.wrong()->what == "its collective operation 5 is an all_gather, but that of rank 0 is a barrier");
}

TEST_CASE("a rank that repeats an operation with other bytes gets the result of the other ranks") {
  collective_book book(2);
  collective_member a(0);
  collective_member b(0);
  a.enter(collective_kind::all_gather, "a");
  b.enter(collective_kind::all_gather, "b");
  book.heard(0, a.report(), false);
  book.heard(1, b.report(), false);
  book.replaced(1);
  collective_member again(0);
  again.enter(collective_kind::all_gather, "other");
  book.heard(1, again.report(), false);
  REQUIRE(book.answer_for(1));
  CHECK(book.answer_for(1)->values == std::vector<std::string>{"a", "b"});
}

TEST_CASE("a result that differs from one given by an earlier coordinator ends the group") {
  collective_book before(2);
  collective_member a(0);
  collective_member b(0);
  a.enter(collective_kind::all_gather, "a");
  b.enter(collective_kind::all_gather, "b");
  before.heard(0, a.report(), false);
  before.heard(1, b.report(), false);
  REQUIRE(b.heard(before.answer_for(1)));
  collective_book after(2);
  collective_member again(0);
  again.enter(collective_kind::all_gather, "other");
  after.heard(0, again.report(), false);
  after.heard(1, b.report(), false);
  REQUIRE(after.wrong());
  CHECK(after.wrong()->rank == 1);
}

TEST_CASE(
    "messages of collective operations survive serialisation, and truncated or overlong ones are refused") {
  collective_report report{
      7, 3, {{7, collective_kind::barrier, {}}, {8, collective_kind::all_gather, std::string(100, 'x')}}};
  const std::string bytes = encode(report);
  CHECK(decode_collective_report(bytes, 2).value() == report);
  auto result =
      std::make_shared<collective_result>(collective_result{8, collective_kind::all_gather, {"a", ""}});
  const std::string answer = encode(collective_answer{result, {1}});
  CHECK(*decode_collective_answer(answer, 2).value().result == *result);
  CHECK(decode_collective_answer(answer, 2).value().not_entered == std::vector<std::uint32_t>{1});
  CHECK_FALSE(decode_collective_answer(answer, 3));                                  // a value is missing
  CHECK_FALSE(decode_collective_answer(encode(collective_answer{result, {2}}), 2));  // there is no rank 2
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(decode_collective_report(bytes.substr(0, size), 2));
  for (std::size_t size = 0; size < answer.size(); ++size)
    CHECK_FALSE(decode_collective_answer(answer.substr(0, size), 2));
  CHECK_FALSE(decode_collective_report(bytes + "x", 2));
  CHECK_FALSE(decode_collective_answer(answer + "x", 2));
  report.words.back().value.resize(collective_bytes_max(2) + 1);
  CHECK_FALSE(decode_collective_report(encode(report), 2));
}
