// The cost of the flight recorder: nanoseconds for publishing one sample, and for one heartbeat. Prints JSON;
// run by tools/bench/supervision.py.
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/process/process_facts.hpp"

#include <chrono>
#include <cstdio>

using namespace penstock;

namespace {

template <class Work>
double nanoseconds_each(std::uint32_t times, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0; i < times; ++i) work(i);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / times;
}

}  // namespace

int main() {
  auto recorders = arena::flight_recorders::create(1);
  if (!recorders) return 1;
  auto writer = arena::flight_writer::map(recorders->fd(), 0);
  if (!writer) return 1;
  const double publish = nanoseconds_each(1'000'000, [&](std::uint32_t i) {
    writer->publish({arena::phase::loading, 1, i & 0xffU, i}, "class3/some/folder/picture-000123.jpg");
    writer->publish(arena::phase::checking);
    writer->sample_done();
  });
  const double beat =
      nanoseconds_each(100'000, [&](std::uint32_t) { writer->beat(process::own_rss_bytes()); });
  std::printf("{\"publish_ns\": %.1f, \"beat_ns\": %.1f}\n", publish, beat);
  return 0;
}
