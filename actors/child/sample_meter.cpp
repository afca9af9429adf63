#include "actors/child/sample_meter.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace penstock::child {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds core_read_every = 250us;  // a reading takes 1 us, as long as loading a batch of small samples

}  // namespace

void sample_meter::begins(steady_time now) {
  began_ = now;
  if (now - core_read_ < core_read_every) return;
  core_read_ = now;
  core_waited_ = core_wait_.read();
}

/// A sample is not slow if its worker had to wait for a core.
void sample_meter::ended(std::uint64_t index, const std::string& name, steady_time now) {
  nanoseconds took = now - began_;
  if (took >= sample_times::named_from) {  // a quicker sample cannot have waited long, so skip the cost of reading the time
    const nanoseconds before = std::exchange(core_waited_, core_wait_.read());
    took -= std::clamp(core_waited_ - before, nanoseconds(0), took);  // clamped: a dataset may have closed the meter's file
  }
  times_.note(index, name, took);
}

}  // namespace penstock::child
