// A device program that breaks its process on a chosen sample, to show how a session reacts. On a GPU it
// makes an illegal memory access, after which the process can never use the GPU again; on the host device, a
// segmentation fault.
//
//   PENSTOCK_ILLEGAL_SAMPLE=17 penstock run photos.toml --sink plugin:./illegal_access.so
#include <penstock/device_program.hpp>

#include <csignal>
#include <cstdlib>

#ifdef __CUDACC__
namespace {
__global__ void write_where_nothing_is() {
  *reinterpret_cast<volatile int*>(0x10) = 1;
}
}  // namespace
#endif

namespace {

class illegal_access final : public penstock::DeviceProgram {
 public:
  illegal_access() {
    if (const char* wanted = std::getenv("PENSTOCK_ILLEGAL_SAMPLE")) sample_ = std::strtoull(wanted, nullptr, 10);
  }
  [[nodiscard]] bool keeps_state() const override { return false; }

  void on_batch(const penstock::DeviceBatch& batch, penstock::stream_handle stream) override {
    static_cast<void>(stream);
    for (const std::uint64_t sample : batch.samples) {
      if (sample != sample_) continue;
      if (batch.on_host) std::raise(SIGSEGV);
#ifdef __CUDACC__
      write_where_nothing_is<<<1, 1, 0, static_cast<cudaStream_t>(stream.native)>>>();
#endif
    }
  }

 private:
  std::uint64_t sample_ = ~0ULL;
};

}  // namespace

PENSTOCK_DEVICE_PROGRAM(illegal_access)
