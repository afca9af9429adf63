// How status, deaths, describe, why and events word deaths and hangs.
#pragma once

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/work_kind.hpp"

#include <penstock/report.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace penstock {

/// "2 batches are loaded again", "1 job runs again".
[[nodiscard]] inline std::string repeated_in_words(std::uint64_t held, work_kind kind) {
  return kind == work_kind::jobs ? counted(held, "job runs again", "jobs run again") : counted(held, "batch is loaded again", "batches are loaded again");
}

/// "2 times: in worker/0 at 23:04:05 after 40 s, in worker/1 at 23:05:10 after 1 m 2 s", the last three. Times are in UTC.
[[nodiscard]] inline std::string hangs_in_words(const hung_work& hung) {
  constexpr std::size_t shown = 3;
  std::string text;
  for (std::size_t i = hung.hangs.size() - std::min(hung.hangs.size(), shown); i < hung.hangs.size(); ++i) {
    const hung_work::hang& h = hung.hangs[i];
    const auto second = std::chrono::floor<std::chrono::seconds>(h.time.time_since_epoch()).count() % (24 * 60 * 60);
    text += fmt::format("{} in worker/{} at {:02}:{:02}:{:02} after {}{}", text.empty() ? "" : ",", h.worker, second / 3600, second / 60 % 60, second % 60,
                        duration_for_people(nanoseconds(static_cast<std::int64_t>(h.seconds * 1e9))), h.timed_out && hung.job ? ", its time limit" : "");
  }
  return counted(hung.hangs.size(), "time") + ":" + text;
}

/// Whether to tell the way out of hangs. `timed_out`: a time limit ended them all, so a job, or a batch of a data loader, has one.
[[nodiscard]] constexpr bool needs_a_limit(work_kind kind, bool timed_out) noexcept {
  return kind == work_kind::samples || !timed_out;
}

/// What to do about a sample, or a job, that hangs again and again.
[[nodiscard]] inline const char* way_out_of_hangs(work_kind kind) {
  switch (kind) {
    case work_kind::jobs: return "restarting a worker does not help, a time limit does: [jobs] timeout, or that of the job";
    case work_kind::batches:
      return "restarting a worker does not help, a time limit does: DataLoader(timeout=60, on_bad_sample=\"skip\") leaves the sample out after three "
             "tries";
    case work_kind::samples: break;
  }
  return "restarting a worker does not help: the session kills the worker itself after [loader.hang] item_timeout, and then it counts: "
         "[quarantine] max_attempts such deaths quarantine the sample";
}

}  // namespace penstock
