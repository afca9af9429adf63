// The overhead of a job in its worker: nanoseconds of CPU time for one empty job in leases of 100, and the
// part of it that restores the process's settings. Prints JSON. Not a test.
#include "actors/job_worker/job_runner.hpp"
#include "actors/protocol/parcels.hpp"
#include "runtime/arena/job_slot.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>

using namespace penstock;

namespace {

constexpr std::uint32_t rows = 100;
constexpr arena::geometry shape{1 << 20, 1, 1};

/// CPU time of this thread only, so that other load does not count.
double cpu_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

template <class Work>
double nanoseconds_each(std::uint32_t times, Work work) {
  const double begin = cpu_nanoseconds();
  for (std::uint32_t i = 0; i < times; ++i) work(i);
  return (cpu_nanoseconds() - begin) / times;
}

}  // namespace

int main() {
  auto memory = arena::arena::create().value();
  if (!memory.size_and_seal(shape)) return 1;
  const auto session = arena::map_partition(memory.fd(), shape, 0).value();
  const auto slots = arena::slots_view::map(memory.fd(), shape, 0).value();
  const auto flights = arena::flight_recorders::create(1).value();
  auto flight = arena::flight_writer::map(flights.fd(), 0).value();
  auto ends = protocol::make_parcel_pair().value();
  job_worker::process_settings settings;
  const std::vector<job_worker::named_function> functions{{"nothing", [](JobCall&) {}}};
  std::uint32_t told = 0;
  job_worker::job_runner runner({functions,
                                 slots,
                                 flight,
                                 settings,
                                 {0, 1},
                                 ends.second.get(),
                                 0,
                                 [&](const protocol::jobs_done&) { ++told; },
                                 [] { return false; }});
  const arena::job_slot table(session.bytes());
  const std::vector<arena::job_order> orders(rows, {.job = 1});
  bool good = true;
  double best = 1e9;
  double writing = 1e9;
  double back = 1e9;
  for (int round = 0; round < 10; ++round) {
    constexpr std::uint32_t leases = 1000;
    writing =
        std::min(writing, nanoseconds_each(leases, [&](std::uint32_t i) { table.write(i, orders); }) / rows);
    const double both = nanoseconds_each(leases, [&](std::uint32_t i) {
      table.write(i, orders);
      good &= runner.run({0, i, rows}).has_value();
    });
    best = std::min(best, both / rows - writing);
    back = std::min(back, nanoseconds_each(20'000, [&](std::uint32_t) { good &= settings.restore(); }));
  }
  std::printf(
      "{\"job_ns\": %.1f, \"jobs_a_second\": %.0f, \"of_which_settings_ns\": %.1f, "
      "\"without_settings_jobs_a_second\": "
      "%.0f, \"session_writes_row_ns\": %.1f}\n",
      best, 1e9 / best, back, 1e9 / (best - back), writing);
  return good ? 0 : 1;
}
