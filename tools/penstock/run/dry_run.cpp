#include "tools/penstock/run/dry_run.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/output.hpp"

#include <penstock/session.hpp>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

/// Only the worker program knows a custom dataset, and a dry run starts no process.
int dry_run_of_custom(const Session::outline& plan, const std::string& file, bool json) {
  if (json) {
    print_json("penstock.dry-run/1", {{"samples", nullptr},
                {"expected_samples", nullptr},
                {"padded_samples", nullptr},
                {"batches_per_epoch", nullptr},
                {"workers", plan.workers},
                {"slot_bytes", nullptr},
                {"slots_per_worker", nullptr},
                {"arena_bytes", nullptr},
                {"fingerprint", nullptr}});
    return exit_ok;
  }
  print(fmt::format("a custom dataset: only its worker program knows how many samples there are; {}",
                    counted(plan.workers, "worker")));
  say("one worker knows them: `penstock doctor` starts one and asks it");
  say("next: penstock doctor " + file);
  return exit_ok;
}

}  // namespace

int dry_run(const config& settings, const std::string& file, bool json) {
  try {
    const auto plan = Session::dry_run(settings);
    for (const std::string& notice : plan.notices) say(notice);
    if (settings.dataset.type == dataset_type::custom) return dry_run_of_custom(plan, file, json);
    if (json) {
      print_json("penstock.dry-run/1", {{"samples", plan.samples},
                  {"expected_samples", plan.expected_samples},
                  {"padded_samples", plan.padded_samples},
                  {"rank", plan.rank},
                  {"world_size", plan.world_size},
                  {"batches_per_epoch", plan.batches_per_epoch},
                  {"workers", plan.workers},
                  {"slot_bytes", plan.slot_bytes},
                  {"slots_per_worker", plan.slots_per_worker},
                  {"arena_bytes", plan.arena_bytes},
                  {"fingerprint", plan.fingerprint}});
    } else {
      const std::string share =
          plan.world_size > 1
              ? fmt::format(" for rank {} of {}{}", plan.rank, plan.world_size,
                            plan.padded_samples > 0 ? fmt::format(" ({} repeated)", plan.padded_samples) : "")
              : std::string();
      print(fmt::format("{}, {} per epoch{}, {} of {}; {}, {} each of {}: {} of shared memory",
                        counted(plan.samples, "sample"), plan.expected_samples, share,
                        counted(plan.batches_per_epoch, "batch", "batches"), settings.sampler.batch_size,
                        counted(plan.workers, "worker"), counted(plan.slots_per_worker, "slot"),
                        bytes_for_people(plan.slot_bytes), bytes_for_people(plan.arena_bytes)));
      print("fingerprint " + plan.fingerprint);
    }
    return exit_ok;
  } catch (const error& e) {
    return refuse_with(exit_failed, e.as_failure(), json);
  }
}

}  // namespace penstock::cli
