// Loads samples in a loop, without a session: the baseline for decode_alone.py. Each of its processes does what a worker does
// for each sample, and nothing else.
//
//   penstock-bench-decode-alone CONFIG SECONDS NUMBER PROCESSES
//
// Prints "ready", waits for a line on stdin, and loads samples NUMBER, NUMBER + PROCESSES, ... for SECONDS. Prints how many.
#include "runtime/base/layout.hpp"
#include "runtime/dataset/factory.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

using namespace penstock;

constexpr std::size_t rows = 3 * 32;  // as many rows as three slots hold

void load_for(const config& settings, std::chrono::duration<double> seconds, std::uint64_t number, std::uint64_t processes) {
  const auto prepared = value_or_throw(prepare_dataset(settings));
  const auto dataset = value_or_throw(make_dataset(settings, prepared.descriptors()));
  const dataset_description d = dataset->describe();
  dataset->setup({0, 1, settings.sampler.seed});
  const auto layout = value_or_throw(lay_out(d.tensors, rows));
  std::vector<std::byte> memory(layout.bytes);
  std::vector<std::span<std::byte>> tensors(layout.tensors.size());
  std::puts("ready");
  std::fflush(stdout);
  std::getchar();
  const auto end = std::chrono::steady_clock::now() + seconds;
  std::uint64_t loaded = 0;
  for (std::uint64_t at = number; std::chrono::steady_clock::now() < end; at += processes) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto& t = layout.tensors[i];
      tensors[i] = std::span(memory).subspan(t.offset + loaded % rows * t.row_bytes, t.row_bytes);
    }
    random_source random(settings.sampler.seed, at / d.samples, at % d.samples);
    dataset->load({at % d.samples, at / d.samples, 1, random}, sample_slot(tensors));
    ++loaded;
  }
  std::printf("%llu\n", static_cast<unsigned long long>(loaded));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fputs("usage: penstock-bench-decode-alone CONFIG SECONDS NUMBER PROCESSES\n", stderr), 2;
  try {
    load_for(load_config(argv[1]), std::chrono::duration<double>(std::atof(argv[2])), std::strtoull(argv[3], nullptr, 10),
             std::strtoull(argv[4], nullptr, 10));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
