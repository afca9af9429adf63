// Runs a config file from your own program, on the host device: a batch is then plain memory, and no GPU is
// needed. A first program with penstock.
//
//   01_run_config examples/configs/synthetic.toml
#include <penstock/session.hpp>

#include <cstddef>
#include <cstdio>
#include <span>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CONFIG\n", argv[0]);
    return 2;
  }
  try {
    // The second argument corresponds to `--set` of `penstock run`. Omit it on a machine with a GPU.
    penstock::Session session(penstock::load_config(argv[1], {"gpu.device=host"}));

    // The first batch starts the worker processes. `batch` owns a device buffer until it is released or goes
    // out of scope; the buffer is then reused.
    for (const penstock::Batch& batch : session.epoch(0)) {
      std::printf("batch %llu: %zu samples;", static_cast<unsigned long long>(batch.sequence()),
                  batch.rows());
      for (const penstock::tensor_view& tensor : batch.tensors()) {
        std::printf(" %.*s %.*s [", static_cast<int>(tensor.name.size()), tensor.name.data(),
                    static_cast<int>(name_of(tensor.type).size()), name_of(tensor.type).data());
        for (const std::uint64_t extent : tensor.shape)
          std::printf(" %llu", static_cast<unsigned long long>(extent));
        // Readable here because the device is the host; on a GPU, kernels use `data`, and
        // batch.read_back(name) copies it to the host.
        unsigned sum = 0;
        for (const std::byte b : std::span(static_cast<const std::byte*>(tensor.data), tensor.bytes()))
          sum += std::to_integer<unsigned>(b);
        std::printf(" ] bytes add up to %u", sum);
      }
      std::printf("\n");
    }

    const penstock::run_report report = session.report();
    std::printf(
        "%llu samples in %llu batches, %.0f samples a second; %u workers started, %zu died, %zu samples "
        "failed\n",
        static_cast<unsigned long long>(report.samples), static_cast<unsigned long long>(report.batches),
        static_cast<double>(report.samples) / report.seconds, report.workers_started, report.deaths.size(),
        report.failures.size());
    return 0;
  } catch (const penstock::error& e) {
    // code() is the kind of error, for programs; what() is the message, for people.
    std::fprintf(stderr, "%s: %s\n", penstock::name_of(e.code()), e.what());
    return 1;
  }
}
