#include "tools/penstock/jobs/map_end.hpp"

#include "runtime/base/units.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/jobs/map_progress.hpp"
#include "tools/penstock/output.hpp"

#include <nlohmann/json.hpp>

#include <csignal>
#include <string>
#include <utility>

namespace penstock::cli {
namespace {

const char* outcome_name(const map_result& r) {
  if (r.stopped()) return "stopped";
  return r.trouble ? "failed" : "finished";
}

nlohmann::ordered_json summary_of(const map_result& r) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const job_status status : all_job_statuses) counts[name_of(status)] = r.counts.of(status);
  nlohmann::ordered_json all{{"schema", "penstock.map/1"},
                             {"outcome", outcome_name(r)},
                             {"jobs", r.counts.jobs},
                             {"counts", std::move(counts)},
                             {"nonzero_exits", r.counts.nonzero_exits},
                             {"from_journal", r.counts.from_journal},
                             {"skipped_lines", r.counts.skipped},
                             {"seconds", r.seconds},
                             {"error", nullptr}};
  if (r.trouble) all["error"] = telemetry::as_json(*r.trouble)["error"];
  return all;
}

}  // namespace

int tell_end(const map_options& o, const map_result& r) {
  if (o.json) {
    const std::string text =
        summary_of(r).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    // stdout must contain only results.
    o.output == "-" ? say(text) : print(text);
  }
  if (!o.quiet) {
    const style how = r.trouble ? style::red : r.stopped() ? style::yellow : style::green;
    say(fmt::format("{} after {}: {}", styled(how, outcome_name(r)),
                    duration_for_people(nanoseconds(static_cast<std::int64_t>(r.seconds * 1e9))),
                    map_counts_line(r.counts)));
  }
  if (r.trouble && r.trouble->code != errc::stopped && !o.json)
    say(styled(style::red, "error:") + " " + r.trouble->message);
  if (r.signal == SIGINT) return exit_interrupted;
  if (r.signal != 0) return exit_terminated;
  return r.trouble || r.by_order || r.counts.of(job_status::ok) != r.counts.jobs ? exit_failed : exit_ok;
}

}  // namespace penstock::cli
