// Simulations in worker processes, evaluated on the GPU. Each job's result, a million places of a random
// walk, goes to the device straight from where its worker wrote it, and the device program `moments` answers
// with mean and variance. One process uses the GPU, whatever the number of workers.
//
//   10_simulate JOBS PROGRAM [DEVICE]       PROGRAM: device_programs/moments.so; DEVICE: auto, host, cuda:0, ...
#include <penstock/pool.hpp>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: %s JOBS PROGRAM [DEVICE]\n", argv[0]);
    return 2;
  }
  try {
    penstock::config settings;
    settings.name = "simulate";
    settings.loader.command = {"10_simulate_worker"};  // looked up next to this program, then in PATH
    settings.loader.workers = 2;
    settings.loader.slot_bytes = penstock::byte_size{2U << 20U};  // a result for the device must fit its slot
    settings.jobs.programs = {{"moments", argv[2]}};
    settings.gpu.device = argc == 4 ? argv[3] : "auto";
    settings.gpu.placement = penstock::placement_rule::process;  // a program that crashes costs only its job
    settings.log.level = penstock::log_level::warn;
    penstock::Pool pool(settings);

    penstock::job_options on_the_gpu;
    on_the_gpu.program = "moments";
    const unsigned long jobs = std::stoul(argv[1]);
    unsigned long seed = 0;
    auto walks = pool.map(
        "walk",
        [&]() -> std::optional<penstock::Argument> {
          if (seed == jobs) return std::nullopt;
          return penstock::Argument(std::to_string(seed++) + " 1000000");
        },
        on_the_gpu, 16);
    while (auto walk = walks.next()) {
      if (const auto why = walk->job.why()) {
        std::printf("walk %llu: %s: %s\n", static_cast<unsigned long long>(walk->index),
                    penstock::name_of(why->status), why->text.c_str());
      } else {
        const penstock::Result answer = walk->job.get();
        std::printf("walk %llu: %s\n", static_cast<unsigned long long>(walk->index),
                    std::string(answer.text()).c_str());
      }
    }
    std::printf("on %s\n", pool.status().gpu.name.c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
