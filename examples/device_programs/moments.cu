// A device program for jobs: computes the mean and variance of the bytes of a job's result, as one line of
// JSON. The result stays on the GPU: a megabyte of pixels comes back as sixty bytes. Used by example 10.
//
// Without nvcc it is built for the host device only.
#include <penstock/job_program.hpp>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace {

struct sums {
  unsigned long long sum = 0;
  unsigned long long squares = 0;
};

#ifdef __CUDACC__
__global__ void add(const unsigned char* bytes, unsigned long long count, sums* to) {
  unsigned long long sum = 0;
  unsigned long long squares = 0;
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    const unsigned long long x = bytes[i];
    sum += x;
    squares += x * x;
  }
  for (int lane = 16; lane > 0; lane /= 2) {
    sum += __shfl_down_sync(0xffffffffU, sum, lane);
    squares += __shfl_down_sync(0xffffffffU, squares, lane);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&to->sum, sum);
    atomicAdd(&to->squares, squares);
  }
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
#endif

class moments final : public penstock::JobProgram {
 public:
  void on_result(penstock::DeviceJob& job, penstock::stream_handle stream) override {
    const sums total = job.on_host() ? on_host(job) : on_device(job, stream);
    const double count = job.bytes() > 0 ? static_cast<double>(job.bytes()) : 1;
    const double mean = static_cast<double>(total.sum) / count;
    const double variance = static_cast<double>(total.squares) / count - mean * mean;
    char line[128];
    const int length = std::snprintf(line, sizeof line, "{\"bytes\":%llu,\"mean\":%.4f,\"variance\":%.4f}",
                                     static_cast<unsigned long long>(job.bytes()), mean, variance);
    const auto room = job.result(static_cast<std::uint64_t>(length));
    std::memcpy(room.data(), line, room.size());
  }

 private:
  static sums on_host(const penstock::DeviceJob& job) {
    sums total;
    const auto* const bytes = static_cast<const unsigned char*>(job.data());
    for (std::uint64_t i = 0; i < job.bytes(); ++i) {
      total.sum += bytes[i];
      total.squares += static_cast<unsigned long long>(bytes[i]) * bytes[i];
    }
    return total;
  }

  static sums on_device(penstock::DeviceJob& job, penstock::stream_handle stream) {
    sums total;
#ifdef __CUDACC__
    const auto on = static_cast<cudaStream_t>(stream.native);
    auto* const to = static_cast<sums*>(job.memory(sizeof(sums)));
    check(cudaMemsetAsync(to, 0, sizeof(sums), on), "clearing two sums");
    add<<<128, 256, 0, on>>>(static_cast<const unsigned char*>(job.data()), job.bytes(), to);
    check(cudaGetLastError(), "adding up a result");
    check(cudaMemcpyAsync(&total, to, sizeof total, cudaMemcpyDeviceToHost, on), "fetching two sums");
    check(cudaStreamSynchronize(on), "fetching two sums");
#else
    static_cast<void>(job);
    static_cast<void>(stream);
    throw std::runtime_error("this program was built without CUDA: use the host device");
#endif
    return total;
  }
};

}  // namespace

PENSTOCK_JOB_PROGRAM(moments)
