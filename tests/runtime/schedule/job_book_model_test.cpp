// Model test of the job book against a simulated world (job_world.hpp), driven by random scripts: deaths in
// the middle of rows and after reports, cancels, timeouts, late and impossible messages, kept results,
// drains, new places, pauses. A failing script is shrunk and printed.
#include "tests/runtime/schedule/job_world.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using testing::job_act;
using testing::job_world;
using testing::job_world_settings;
using testing::job_world_tally;
using testing::random_choice;

namespace {

using script = testing::script_of<job_act>;

job_world_settings random_settings(random_choice& choose) {
  job_world_settings s;
  s.workers = 1 + choose.below(5);
  s.slots = 1 + choose.below(4);
  s.rows_max = 1 + choose.below(8);
  s.max_attempts = choose.below(3) == 0 ? 1 + choose.below(4) : 3;
  s.jobs = 1 + choose.below(choose.below(4) == 0 ? 300 : 60);
  s.odd_jobs = choose.below(3) == 0 ? 5 : choose.below(80);
  s.fresh_jobs = choose.below(3) * 15;
  s.placed_jobs = choose.below(3) * 20;
  s.salt = choose.below(1U << 30U);
  s.outside_kills_blame = choose.below(2) == 0;
  return s;
}

script random_script(random_choice& choose) {
  // Faults are rarer than work, and in some scripts much rarer.
  const std::uint32_t calm = 1 + choose.below(8);
  constexpr job_act usual[] = {job_act::submit,  job_act::submit,  job_act::work,    job_act::work,
                               job_act::work,    job_act::work,    job_act::deliver, job_act::deliver,
                               job_act::deliver, job_act::release, job_act::start};
  script made(50 + choose.below(450));
  for (auto& s : made) {
    s.what = static_cast<job_act>(choose.below(static_cast<std::uint32_t>(job_act::count)));
    const bool rare = s.what == job_act::give_probations_up || s.what == job_act::add_place;
    if (choose.below(calm) != 0 || (rare && choose.below(10) != 0))
      s.what = usual[choose.below(std::size(usual))];
    s.pick = choose.below(10'000);
  }
  return made;
}

std::string describe(const job_world_settings& s) {
  return fmt::format(
      "workers {}, slots {}, rows_max {}, max_attempts {}, jobs {}, odd_jobs {}, fresh_jobs {}, placed_jobs "
      "{}, salt {}, "
      "outside_kills_blame {}",
      s.workers, s.slots, s.rows_max, s.max_attempts, s.jobs, s.odd_jobs, s.fresh_jobs, s.placed_jobs, s.salt,
      s.outside_kills_blame);
}

testing::model<job_act, job_world_settings> model_that_counts(job_world_tally& tally) {
  return {.name = "job book model",
          .act_names = testing::job_act_names,
          .random_script = random_script,
          .random_settings = random_settings,
          .describe = describe,
          .run = [&tally](const job_world_settings& settings, const script& steps_to_do) {
            job_world w(settings, tally);
            for (const auto& s : steps_to_do) w.perform(s);
            w.finish();
            return steps_to_do.size();
          }};
}

}  // namespace

TEST_CASE("every job is settled once and runs once at a time, whatever dies, is cancelled or arrives late") {
  job_world_tally tally;
  testing::explore(model_that_counts(tally));
  CHECK(tally.ends.size() == 7);
  for (const std::uint64_t often :
       {tally.bundles, tally.probations, tally.ahead, tally.fresh, tally.placed, tally.elsewhere,
        tally.revoked, tally.ended, tally.refreshed, tally.emptied, tally.blamed, tally.late})
    CHECK(testing::is_tried(often, 500));
}

TEST_CASE("the model of jobs finds a planted bug and shrinks it to a few steps") {
  job_world_settings settings;
  settings.odd_jobs = 0;
  settings.fresh_jobs = 0;
  settings.placed_jobs = 0;
  settings.deaths_unreported = true;
  script steps_to_do(200, {job_act::deliver, 0});
  steps_to_do[20] = {job_act::start, 0};
  steps_to_do[60] = {job_act::submit, 0};
  steps_to_do[130] = {job_act::kill, 0};
  job_world_tally tally;
  const auto model = model_that_counts(tally);
  const std::string what = model.trouble_with(settings, steps_to_do);
  REQUIRE(what == "deadlock: no event is left");
  CHECK(model.shortest(settings, steps_to_do, what).size() <= 3);  // the script: start a worker, submit a job, kill the worker
}
