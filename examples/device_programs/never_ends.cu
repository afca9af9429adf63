// A device program that never returns from a chosen sample, to show how a session ends it. On a GPU its
// kernel spins forever, on the host device its thread waits forever. [gpu.hang] batch_timeout limits that.
//
//   PENSTOCK_ENDLESS_SAMPLE=17 penstock run photos.toml --sink plugin:./never_ends.so --set gpu.hang.batch_timeout=5s
#include <penstock/device_program.hpp>

#include <unistd.h>

#include <cstdlib>

#ifdef __CUDACC__
namespace {
__global__ void spin_for_ever(volatile unsigned* never) {
  while (*never == 0) {
  }
}
}  // namespace
#endif

namespace {

class never_ends final : public penstock::DeviceProgram {
 public:
  never_ends() {
    if (const char* wanted = std::getenv("PENSTOCK_ENDLESS_SAMPLE")) sample_ = std::strtoull(wanted, nullptr, 10);
  }
  [[nodiscard]] bool keeps_state() const override { return false; }

  void on_batch(const penstock::DeviceBatch& batch, penstock::stream_handle stream) override {
    static_cast<void>(stream);
    for (const std::uint64_t sample : batch.samples) {
      if (sample != sample_) continue;
      while (batch.on_host) ::pause();
#ifdef __CUDACC__
      unsigned* never = nullptr;
      if (cudaMalloc(&never, sizeof *never) != cudaSuccess || cudaMemset(never, 0, sizeof *never) != cudaSuccess) std::abort();
      spin_for_ever<<<1, 1, 0, static_cast<cudaStream_t>(stream.native)>>>(never);
#endif
    }
  }

 private:
  std::uint64_t sample_ = ~0ULL;
};

}  // namespace

PENSTOCK_DEVICE_PROGRAM(never_ends)
