#include "actors/remote/process_meter.hpp"

#include "runtime/process/process_facts.hpp"

#include <ctime>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto measure_every = 250ms;  // to notice a debugger, which suspends time limits; less than the shortest limit

}  // namespace

void process_meter::look(steady_time now) {
  if (now - measured_at_ < measure_every) return;
  measured_at_ = now;
  const auto facts = process::look_at(pid_);
  if (facts && facts->rss_bytes > 0) {  // 0: the process has just ended, so keep the last figures for the report of its death
    private_bytes_ = facts->rss_anon_bytes;
    resident_bytes_ = facts->rss_bytes;
  }
  traced_ = facts && facts->traced;
}

nanoseconds process_meter::cpu() {
  clockid_t clock = 0;
  timespec used{};
  if (pid_ > 0 && ::clock_getcpuclockid(pid_, &clock) == 0 && ::clock_gettime(clock, &used) == 0)
    cpu_ = std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
  return cpu_;
}

}  // namespace penstock::hosts
