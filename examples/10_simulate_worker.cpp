// The worker program of 10_simulate: a random walk as a job. Its result is large: every place that the walk
// visits.
#include <penstock/job.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace {

/// Argument: "SEED STEPS". Result: one byte per step, the place modulo 256.
void walk(penstock::JobCall& call) {
  std::size_t gap = 0;
  const std::string text(call.text());
  const auto seed = std::stoull(text, &gap);
  const auto steps = std::stoull(text.substr(gap));
  const auto places = call.result(steps);  // where the GPU owner reads it: no copy on the host
  std::uint64_t state = seed * 2 + 1;
  unsigned place = 128;
  for (std::byte& one : places) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    place = (place + ((state >> 63U) != 0 ? 1U : 255U)) % 256U;
    one = static_cast<std::byte>(place);
  }
}

}  // namespace

int main() {
  return penstock::job_main({{"walk", walk}});
}
