// The drivers of a group in a simulated world (group_world.hpp), driven by random scripts: deaths at any step, rank 0's included;
// suspended processes; messages that are lost, late or repeated; disconnected hosts; stops; failing communicators. A failing script
// is shrunk and printed.
#include "tests/runtime/group/group_world.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using testing::group_act;
using testing::group_world;
using testing::group_world_settings;
using testing::group_world_tally;
using testing::random_choice;

namespace {

using script = testing::script_of<group_act>;

group_world_settings random_settings(random_choice& choose) {
  group_world_settings s;
  s.ranks = choose.below(3) == 0 ? 1 + choose.below(16) : 1 + choose.below(4);
  s.batches = 1 + choose.below(40);
  s.waits = choose.below(4) != 0;
  s.communicator = choose.below(3) == 0;
  s.counts_starts = choose.below(2) == 0;
  s.deaths_seen = choose.below(3) != 0;
  if (s.ranks > 1 && choose.below(8) == 0) s.odd = choose.below(s.ranks);
  if (s.ranks > 1 && choose.below(8) == 0) s.odd_data = choose.below(s.ranks);
  s.launcher_hears_end = choose.below(2) == 0;
  return s;
}

script random_script(random_choice& choose) {
  constexpr auto first_accident = static_cast<std::uint32_t>(group_act::lose);
  constexpr auto acts = static_cast<std::uint32_t>(group_act::count);
  // Each script has only a few kinds of faults, some of them rarely: rare faults must coincide to do harm.
  std::vector<group_act> accidents;
  for (std::uint32_t what = first_accident; what < acts; ++what) {
    const auto act = static_cast<group_act>(what);
    const bool ends_a_group = act == group_act::stop || act == group_act::leave || act == group_act::fail;
    if (choose.below(ends_a_group ? 8 : 3) == 0) accidents.push_back(act);
  }
  const std::uint32_t calm = 2 + choose.below(20);
  const std::uint32_t in_step = choose.below(4);
  constexpr group_act work[] = {group_act::pass,    group_act::deliver, group_act::deliver,
                                group_act::deliver, group_act::deliver, group_act::hand_over,
                                group_act::nccl,    group_act::start};
  script made(100 + choose.below(500));
  for (auto& s : made) {
    s.pick = choose.below(10'000);
    s.what = choose.below(10) < in_step ? group_act::exchange : work[choose.below(std::size(work))];
    if (!accidents.empty() && choose.below(calm) == 0)
      s.what = accidents[choose.below(static_cast<std::uint32_t>(accidents.size()))];
  }
  return made;
}

/// A script of ordinary work and suspended processes only.
script random_script_of_pauses(random_choice& choose) {
  script made = random_script(choose);
  const std::uint32_t calm = 5 + choose.below(60);
  for (auto& s : made) {
    if (s.what >= group_act::lose) s.what = group_act::pass;
    if (choose.below(calm) == 0) s.what = choose.below(2) == 0 ? group_act::pause_one : group_act::pause_all;
  }
  return made;
}

group_world_settings random_settings_of_pauses(random_choice& choose) {
  group_world_settings s = random_settings(choose);
  s.waits = choose.below(4) == 0;
  s.odd = s.odd_data = std::nullopt;
  return s;
}

std::string describe(const group_world_settings& s) {
  return fmt::format(
      "ranks {}, batches {}, waits {}, communicator {}, counts_starts {}, deaths_seen {}, launcher_hears_end "
      "{}, "
      "odd {}, odd_data {}",
      s.ranks, s.batches, s.waits, s.communicator, s.counts_starts, s.deaths_seen, s.launcher_hears_end,
      s.odd ? static_cast<int>(*s.odd) : -1, s.odd_data ? static_cast<int>(*s.odd_data) : -1);
}

testing::model<group_act, group_world_settings> model_that_counts(group_world_tally& tally) {
  return {.name = "group model",
          .act_names = testing::group_act_names,
          .random_script = random_script,
          .random_settings = random_settings,
          .describe = describe,
          .run = [&tally](const group_world_settings& settings, const script& steps_to_do) {
            group_world w(settings, tally);
            for (const auto& s : steps_to_do) w.perform(s);
            w.finish();
            return steps_to_do.size();
          }};
}

}  // namespace

TEST_CASE("a group agrees, survives or ends as a whole, whatever dies, is disconnected or arrives late") {
  group_world_tally tally;
  testing::explore(model_that_counts(tally));
  using group::group_outcome;
  for (const group_outcome how : {group_outcome::finished, group_outcome::stopped, group_outcome::failed})
    CHECK(testing::is_tried(tally.outcomes[how], 200));
  for (const std::uint64_t often :
       {tally.replaced, tally.takeovers, tally.back, tally.cut_off, tally.communicators, tally.aborts,
        tally.refused, tally.stops, tally.twins, tally.pauses})
    CHECK(testing::is_tried(often, 50));
}

TEST_CASE("in a group with suspended processes no running rank is blamed, and all ranks name the same one") {
  group_world_tally tally;
  auto model = model_that_counts(tally);
  model.name = "group model, pauses";
  model.random_script = random_script_of_pauses;
  model.random_settings = random_settings_of_pauses;
  testing::explore(model);
  using group::group_outcome;
  for (const std::uint64_t often :
       {tally.outcomes[group_outcome::finished], tally.pauses, tally.blamed_for_pauses})
    CHECK(testing::is_tried(often, 200));
}

TEST_CASE("the model of groups finds a disconnected rank that continues") {
  group_world_settings planted;
  planted.ranks = 3;
  planted.batches = 40;
  planted.counts_starts = false;
  planted.goes_on_when_cut_off = true;
  group_world_tally tally;
  CHECK(testing::finds_a_mistake(model_that_counts(tally), planted));
}
