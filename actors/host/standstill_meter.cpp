#include "actors/host/standstill_meter.hpp"

#include "actors/host/run_events.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

namespace penstock::host {
namespace {

/// A clock that, unlike steady_clock, runs while the machine is suspended.
nanoseconds time_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

/// How long this thread has run or waited for a core.
nanoseconds accounted_time() {
  const auto times = process::times_of(::getpid(), ::gettid());
  return times ? times->cpu + times->core_wait : nanoseconds(0);
}

/// "15:01:12.345".
std::string time_of_day(std::chrono::system_clock::time_point when) {
  return telemetry::as_utc(when).substr(11, 12);
}

}  // namespace

event event_of_standstill(nanoseconds stood, std::chrono::system_clock::time_point ended, work_kind kind) {
  const auto began = ended - std::chrono::duration_cast<std::chrono::system_clock::duration>(stood);
  event e = event_of(event_kind::suspended,
                     fmt::format("the {}'s process was suspended for {}, from {} to {} UTC (SIGSTOP, a debugger, a frozen "
                                 "container, or the machine slept)",
                                 words_for(kind).run, duration_for_people(stood), time_of_day(began), time_of_day(ended)));
  e.time = ended;
  e.pid = ::getpid();
  return e;
}

std::optional<nanoseconds> standstill_meter::look() {
  return watch_.look(time_since_boot(), accounted_time());
}

}  // namespace penstock::host
