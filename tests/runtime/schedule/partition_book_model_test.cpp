// Model test of the partition book in a small world: workers start and are replaced in any order, describe what they see, differ
// from each other or belong to another kind of run; sizing and memory fail at any time. The world knows which partitions exist and
// whether the run lives. A failing script is shrunk and printed.
#include "runtime/schedule/partition_book.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>

using namespace penstock;
using namespace penstock::schedule;
using testing::require;

namespace {

enum class act : std::uint8_t { describe, differ, mistake_the_run, garble, lack_memory, replace, count };
constexpr const char* act_names[] = {"describe", "differ", "mistake_the_run", "garble", "lack_memory", "replace"};
using script = testing::script_of<act>;

/// Bugs of the code that carries out the commands.
enum class bug : std::uint8_t { none, goes_on_after_a_failure, forgets_a_failure, skips_the_sizing, skips_a_partition, keeps_the_old_worker };

struct world_settings {
  bool pool = false;
  bool listed = false;  // the session knows the dataset before its workers do
  bug planted = bug::none;
};

constexpr std::uint32_t places = 5;
std::uint64_t given_in_all = 0;
std::uint64_t replaced_in_all = 0;
std::uint64_t failed_in_all = 0;
std::uint64_t refused_late_in_all = 0;

dataset_description dataset_of(std::uint32_t variant) {
  dataset_description made{"synthetic", 10, {{.name = "x", .shape = {4}}}, "same"};
  if (variant == 1) made.type = "csv";
  if (variant == 2) made.samples = 11;
  if (variant == 3) made.tensors.clear();
  if (variant == 4) made.fingerprint = "other";
  return made;
}

served what(bool functions, std::uint32_t variant) {
  if (!functions) return served_dataset{dataset_of(variant), {}};
  std::vector<std::string> names{"f", "g", "h"};
  if (variant != 0) names.resize(variant % 3);
  if (variant > 3) names = {"f", "g", "i"};
  return served_functions{std::move(names)};
}

class world {
 public:
  explicit world(const world_settings& settings)
      : settings_(settings),
        book_(settings.pool ? work_kind::jobs : work_kind::samples,
              settings.listed && !settings.pool ? std::optional(dataset_of(0)) : std::nullopt) {
    if (settings.listed && !settings.pool) known_ = what(false, 0);
  }

  std::size_t run(const script& steps) {
    for (const auto& s : steps) perform(s);
    return steps.size();
  }

  result<void> operator()(const adopt_served& c) {
    require(alive_, "a run that has failed adopts a description");
    require(!sized_, "the run is sized twice");
    require(said_ && c.what == *said_, "the run adopts what no worker has said");
    known_ = c.what;
    if (memory_lacks()) return refuse(errc::io, "no memory");
    sized_ = settings_.planted != bug::skips_the_sizing;
    return {};
  }
  result<void> operator()(const prepare_partition& c) {
    require(alive_ && !lacked_, "a run that has failed prepares a partition");
    require(sized_, "a partition is prepared before the run is sized");
    require(c.partition == describing_, "the partition of another worker is prepared");
    require(!places_.at(c.partition).reserved, "a partition is prepared twice");
    if (memory_lacks()) return refuse(errc::io, "no memory");
    places_.at(c.partition).reserved = settings_.planted != bug::skips_a_partition;
    return {};
  }
  result<void> operator()(const give_slots& c) {
    answer(c.who);
    require(alive_ && !lacked_, "a run that has failed gives slots");
    require(sized_ && places_.at(c.who.worker).reserved, "a worker gets slots that do not exist");
    require(said_ && said_ == known_, "a worker that differs from the first gets slots");
    ++given_in_all;
    return {};
  }
  result<void> operator()(const refuse_slots& c) {
    answer(c.who);
    require(!alive_, "a worker is refused in a run that lives");
    return {};
  }
  result<void> operator()(const fail_run& c) {
    require(alive_, "the run fails twice");
    require(!c.why.message.empty(), "the run fails without a reason");
    alive_ = settings_.planted == bug::goes_on_after_a_failure;
    ++failed_in_all;
    return {};
  }

 private:
  struct place {
    std::uint32_t incarnation = 0;
    bool answered = true;
    bool reserved = false;
  };

  void perform(const testing::step<act>& s) {
    const std::uint32_t worker = s.pick % places;
    const std::uint32_t pick = s.pick / places;
    place& p = places_.at(worker);
    switch (s.what) {
      case act::describe: return introduce(worker, what(settings_.pool, 0), pick % 2 == 0);
      case act::differ: return introduce(worker, what(settings_.pool, 1 + pick % 4), false);
      case act::mistake_the_run: return introduce(worker, what(!settings_.pool, pick % 5), false);
      case act::garble: return introduce(worker, refuse(errc::protocol, "garbled"), false);
      case act::lack_memory: memory_lasts_ = pick % 3; return;
      case act::replace:
        if (p.incarnation > 0) ++replaced_in_all;
        ++p.incarnation;
        return;
      case act::count: return;
    }
  }

  void introduce(std::uint32_t worker, result<served> said, bool reversed) {
    place& p = places_.at(worker);
    if (p.incarnation == 0) ++p.incarnation;
    p.answered = false;
    describing_ = worker;
    lacked_ = false;
    said_ = said ? std::optional(*said) : std::nullopt;
    const bool of_this_run = said_ && std::holds_alternative<served_functions>(*said_) == settings_.pool;
    const bool fits = of_this_run && (!known_ || known_ == said_);
    const bool was_alive = alive_;
    if (!was_alive) ++refused_late_in_all;
    if (reversed && of_this_run && settings_.pool) std::ranges::reverse(std::get<served_functions>(*said).names);
    welcome(book_, {worker, p.incarnation}, std::move(said), *this);
    require(p.answered, "a worker that has described itself gets no answer");
    require(alive_ == (was_alive && fits && !lacked_), "the run lives although it should have failed, or the other way round");
  }

  [[nodiscard]] bool memory_lacks() {
    if (!memory_lasts_) return false;
    if ((*memory_lasts_)-- > 0) return false;
    memory_lasts_.reset();
    lacked_ = true;
    return settings_.planted != bug::forgets_a_failure;
  }

  void answer(worker_ref who) {
    place& p = places_.at(who.worker);
    require(who.worker == describing_ && !p.answered, "a worker is answered twice, or one that did not ask");
    require(who.incarnation == p.incarnation, "the answer is for an earlier process");
    p.answered = settings_.planted != bug::keeps_the_old_worker || p.incarnation < 2;
  }

  const world_settings settings_;
  partition_book book_;
  std::array<place, places> places_{};
  std::optional<served> known_;  // the description that others are compared with
  std::optional<served> said_;   // with sorted functions; empty: garbled
  std::optional<std::uint32_t> memory_lasts_;  // the number of commands until memory runs out
  std::uint32_t describing_ = 0;
  bool sized_ = false;
  bool lacked_ = false;
  bool alive_ = true;
};

script random_script(testing::random_choice& choose) {
  script steps(10 + choose.below(30));
  for (auto& s : steps) {
    const std::uint32_t what = choose.below(100);
    s.what = what < 60 ? act::describe : what < 90 ? act::replace : static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    s.pick = choose.below(1000);
  }
  return steps;
}

world_settings random_settings(testing::random_choice& choose) {
  const std::uint32_t bits = choose.below(4);
  return {(bits & 1) != 0, (bits & 2) != 0, bug::none};
}

std::string describe(const world_settings& s) {
  return fmt::format("pool: {}, listed: {}", s.pool, s.listed);
}

const testing::model<act, world_settings> the_model{
    .name = "partition_book",
    .act_names = act_names,
    .random_script = random_script,
    .random_settings = random_settings,
    .describe = describe,
    .run = [](const world_settings& s, const script& steps) { return world(s).run(steps); }};

}  // namespace

TEST_CASE("in whatever order workers describe themselves, those that agree get slots in memory that exists, or the run has failed") {
  testing::explore(the_model);
  CHECK(testing::is_tried(given_in_all, 200'000));
  CHECK(testing::is_tried(replaced_in_all, 50'000));
  CHECK(testing::is_tried(failed_in_all, 20'000));
  CHECK(testing::is_tried(refused_late_in_all, 20'000));
}

TEST_CASE("the model of partitions finds a host that ignores the book's decisions") {
  for (const bug planted : {bug::goes_on_after_a_failure, bug::forgets_a_failure, bug::skips_the_sizing, bug::skips_a_partition,
                            bug::keeps_the_old_worker}) {
    for (const bool pool : {false, true}) {
      CAPTURE(static_cast<int>(planted), pool);
      CHECK(testing::finds_a_mistake(the_model, world_settings{pool, false, planted}));
    }
  }
}
