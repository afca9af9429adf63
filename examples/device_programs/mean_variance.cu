// A device program: computes on the GPU the mean and variance of all values in a dataset's first
// floating-point or uint8 tensor. It keeps state and gives snapshots, so that no value is lost or counted
// twice if the GPU owner dies.
//
//   penstock run photos.toml --set gpu.dtype=float32 --sink plugin:./mean_variance.so
//
// Without nvcc it is built for the host device only.
#include <penstock/device_program.hpp>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace {

struct sums {
  double count = 0;
  double sum = 0;
  double squares = 0;
};

template <class T>
void add_on_host(const T* values, std::uint64_t count, sums& to) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(values[i]);
    to.sum += x;
    to.squares += x * x;
  }
}

#ifdef __CUDACC__
template <class T>
__global__ void add(const T* values, unsigned long long count, double* sum, double* squares) {
  double own_sum = 0;
  double own_squares = 0;
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    const double x = values[i];
    own_sum += x;
    own_squares += x * x;
  }
  for (int lane = 16; lane > 0; lane /= 2) {
    own_sum += __shfl_down_sync(0xffffffffU, own_sum, lane);
    own_squares += __shfl_down_sync(0xffffffffU, own_squares, lane);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(sum, own_sum);
    atomicAdd(squares, own_squares);
  }
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
#endif

class mean_variance final : public penstock::DeviceProgram {
 public:
  void on_batch(const penstock::DeviceBatch& batch, penstock::stream_handle stream) override {
    const penstock::tensor_view& values = first_of_a_known_type(batch);
    std::uint64_t count = 1;
    for (const std::uint64_t n : values.shape) count *= n;
    total_.count += static_cast<double>(count);
    const bool bytes = values.type == penstock::dtype::uint8;
    if (batch.on_host) {
      if (bytes) add_on_host(static_cast<const std::uint8_t*>(values.data), count, total_);
      if (!bytes) add_on_host(static_cast<const float*>(values.data), count, total_);
      return;
    }
#ifdef __CUDACC__
    if (device_sums_ == nullptr) {
      check(cudaMalloc(&device_sums_, 2 * sizeof(double)), "allocating two sums");
      fetch_or_set(cudaMemcpyHostToDevice);
    }
    const auto on = static_cast<cudaStream_t>(stream.native);
    if (bytes) add<<<256, 256, 0, on>>>(static_cast<const std::uint8_t*>(values.data), count, device_sums_, device_sums_ + 1);
    if (!bytes) add<<<256, 256, 0, on>>>(static_cast<const float*>(values.data), count, device_sums_, device_sums_ + 1);
    check(cudaGetLastError(), "adding up a batch");
#else
    static_cast<void>(stream);
    throw std::runtime_error("this program was built without CUDA: use the host device");
#endif
  }

  std::optional<std::vector<std::byte>> snapshot() override {
    fetch_sums();
    std::vector<std::byte> state(sizeof total_);
    std::memcpy(state.data(), &total_, sizeof total_);
    return state;
  }
  void restore(std::span<const std::byte> state) override {
    if (state.size() == sizeof total_) std::memcpy(&total_, state.data(), sizeof total_);
  }
  void finish() override {
    fetch_sums();
    const double mean = total_.count > 0 ? total_.sum / total_.count : 0;
    const double variance = total_.count > 0 ? total_.squares / total_.count - mean * mean : 0;
    std::printf("mean_variance: %.0f values, mean %.6f, variance %.6f\n", total_.count, mean, variance);
  }

 private:
  static const penstock::tensor_view& first_of_a_known_type(const penstock::DeviceBatch& batch) {
    for (const penstock::tensor_view& t : batch.tensors) {
      if (t.type == penstock::dtype::uint8 || t.type == penstock::dtype::float32) return t;
    }
    throw std::runtime_error("no tensor of type uint8 or float32 in the batch");
  }

  void fetch_sums() {
#ifdef __CUDACC__
    if (device_sums_ != nullptr) fetch_or_set(cudaMemcpyDeviceToHost);
#endif
  }
#ifdef __CUDACC__
  void fetch_or_set(cudaMemcpyKind direction) {
    double both[2] = {total_.sum, total_.squares};
    void* const to = direction == cudaMemcpyHostToDevice ? static_cast<void*>(device_sums_) : both;
    const void* const from = direction == cudaMemcpyHostToDevice ? static_cast<const void*>(both) : device_sums_;
    check(cudaMemcpy(to, from, sizeof both, direction), "moving two sums");
    total_.sum = both[0];
    total_.squares = both[1];
  }
  double* device_sums_ = nullptr;  // sum and sum of squares; freed when the process ends
#endif
  sums total_;
};

}  // namespace

PENSTOCK_DEVICE_PROGRAM(mean_variance)
