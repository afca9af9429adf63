#include "runtime/device/cuda/cuda_yardstick.hpp"

#include "runtime/device/cuda/convert.hpp"
#include "runtime/device/cuda/cuda_choice.hpp"
#include "runtime/device/cuda/cuda_error.hpp"
#include "runtime/device/cuda/kernel_step.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

namespace penstock::device {
namespace {

// Resources of one measurement. Keeps the first error, which becomes the measurement's result.
class workbench {
 public:
  workbench() {
    note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (cudaEvent_t& e : timed) note(cudaEventCreate(&e));
    for (cudaEvent_t& e : marks) note(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  }
  ~workbench() {
    cudaStreamSynchronize(stream);
    for (cudaEvent_t e : timed) cudaEventDestroy(e);
    for (cudaEvent_t e : marks) cudaEventDestroy(e);
    cudaStreamDestroy(stream);
    for (void* p : allocated) cudaFree(p);
    for (std::byte* p : registered) cudaHostUnregister(p);
    cudaGetLastError();
  }
  workbench(const workbench&) = delete;
  workbench& operator=(const workbench&) = delete;

  void note(cudaError_t s) {
    if (status == cudaSuccess) status = s;
  }
  std::byte* allocate(std::size_t bytes) {
    void* p = nullptr;
    note(cudaMalloc(&p, bytes));
    allocated.push_back(p);
    return static_cast<std::byte*>(p);
  }
  [[nodiscard]] bool good() const { return status == cudaSuccess; }

  cudaError_t status = cudaSuccess;
  cudaStream_t stream = nullptr;
  std::array<cudaEvent_t, 2> timed{};
  std::array<cudaEvent_t, 4> marks{};
  std::vector<void*> allocated;
  std::vector<std::byte*> registered;
};

double seconds_since(steady_time begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Registers all partitions; false if any could not be registered.
bool register_all(workbench& bench, const slots_in_memory& memory) {
  bool all = true;
  for (const std::span<std::byte> p : memory.partitions) {
    if (cudaHostRegister(p.data(), p.size(), cudaHostRegisterPortable) == cudaSuccess) {
      bench.registered.push_back(p.data());
    } else {
      cudaGetLastError();
      all = false;
    }
  }
  return all;
}

}  // namespace

result<bare_copies> measure_cuda_copies(const cuda_choice& choice, const slots_in_memory& memory,
                                        std::uint32_t buffers, nanoseconds time) {
  auto gpu = select_gpu(choice);
  if (!gpu) return tl::unexpected(std::move(gpu.error()));
  workbench bench;
  bare_copies result{gpu->what.name, 0, 0, false};
  const auto registering = std::chrono::steady_clock::now();
  result.pinned = register_all(bench, memory);
  result.register_seconds = seconds_since(registering);
  const std::size_t slot_bytes = memory.slots.front().size();
  std::byte* const ring = bench.allocate(slot_bytes * buffers);
  // An event after each burst; a burst starts only when the event four bursts earlier is done, so up to four
  // are in flight.
  const std::uint64_t burst = std::clamp<std::uint64_t>(2'000'000 / slot_bytes, 1, 64);
  std::uint64_t copied = 0;
  std::uint64_t bursts = 0;
  const auto copy_burst = [&] {
    cudaEvent_t const mark = bench.marks[bursts % bench.marks.size()];
    if (bursts >= bench.marks.size()) bench.note(cudaEventSynchronize(mark));
    for (std::uint64_t i = 0; i < burst; ++i, ++copied) {
      bench.note(cudaMemcpyAsync(ring + copied % buffers * slot_bytes,
                                 memory.slots[copied % memory.slots.size()].data(), slot_bytes,
                                 cudaMemcpyHostToDevice, bench.stream));
    }
    bench.note(cudaEventRecord(mark, bench.stream));
    ++bursts;
  };
  for (int warm_up = 0; warm_up < 16 && bench.good(); ++warm_up) copy_burst();
  bench.note(cudaStreamSynchronize(bench.stream));
  copied = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (bench.good() && std::chrono::steady_clock::now() - begin < time) copy_burst();
  bench.note(cudaStreamSynchronize(bench.stream));
  if (!bench.good()) return refuse_cuda(bench.status, "measuring bare copies, or an earlier operation");
  result.bytes_per_second = static_cast<double>(copied * slot_bytes) / seconds_since(begin);
  return result;
}

result<conversion_rates> measure_cuda_conversion(const cuda_choice& choice, const transfer_plan& plan,
                                                 nanoseconds time) {
  auto gpu = select_gpu(choice);
  if (!gpu) return tl::unexpected(std::move(gpu.error()));
  workbench bench;
  const std::uint32_t rows = plan.slot.rows_max;
  const std::uint64_t bytes = plan.slot.payload_bytes(rows) + plan.tensors.front().row_bytes * rows;
  // Takes enough sets of buffers in turn that none is still in a cache when it is used again.
  constexpr std::size_t sets = 8;
  struct set {
    std::byte* staging = nullptr;
    std::byte* data = nullptr;
  };
  std::array<set, sets> memory;
  for (set& s : memory) {
    s = {bench.allocate(plan.slot.bytes), bench.allocate(plan.buffer_bytes)};
    if (bench.good()) bench.note(cudaMemsetAsync(s.staging, 77, plan.slot.bytes, bench.stream));
  }
  // Copies half as many bytes as the conversion reads and writes, which causes the same traffic.
  std::array<set, sets> plain;
  const std::size_t half = bytes / 2;
  for (set& s : plain) s = {bench.allocate(half), bench.allocate(half)};

  const auto rate = [&](auto&& work) {
    std::uint64_t done = 0;
    double busy_seconds = 0;
    const auto begin = std::chrono::steady_clock::now();
    while (bench.good() && std::chrono::steady_clock::now() - begin < time / 2) {
      constexpr int burst = 64;
      bench.note(cudaEventRecord(bench.timed[0], bench.stream));
      for (int i = 0; i < burst; ++i) work(done++ % sets);
      bench.note(cudaEventRecord(bench.timed[1], bench.stream));
      bench.note(cudaEventSynchronize(bench.timed[1]));
      float milliseconds = 0;
      bench.note(cudaEventElapsedTime(&milliseconds, bench.timed[0], bench.timed[1]));
      if (done > burst) busy_seconds += milliseconds / 1e3;  // the first burst warms up
    }
    constexpr std::uint64_t warm_up = 64;
    return done > warm_up ? static_cast<double>((done - warm_up) * bytes) / busy_seconds : 0.0;
  };
  conversion_rates rates{gpu->what.name, 0, 0};
  rates.convert_bytes_per_second = rate([&](std::size_t i) {
    bench.note(launch_convert(
        kernel_step_of(plan.conversions.front(), memory[i].staging, memory[i].data, rows), bench.stream));
  });
  rates.copy_bytes_per_second = rate([&](std::size_t i) {
    bench.note(
        cudaMemcpyAsync(plain[i].data, plain[i].staging, half, cudaMemcpyDeviceToDevice, bench.stream));
  });
  if (!bench.good()) return refuse_cuda(bench.status, "measuring the conversion, or an earlier operation");
  return rates;
}

}  // namespace penstock::device
