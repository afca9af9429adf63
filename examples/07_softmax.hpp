// The computation of 07_softmax_ranks: softmax regression on the GPU or the host device, kept as simple as
// possible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace softmax {

inline constexpr int classes_max = 16;
inline constexpr float rate = 2e-3F;

/// The data of one rank's step, until the gradients are summed.
struct step_data {
  const float* images = nullptr;  // [rows, inputs]
  const std::int64_t* labels = nullptr;
  float* weights = nullptr;  // [inputs, classes]
  float* error = nullptr;    // [rows, classes]
  float* losses = nullptr;   // [rows]
  float* sums = nullptr;     // [inputs, classes] the gradient; then 2 numbers: the loss and the number of rows
  int rows = 0;
  int inputs = 0;
  int classes = classes_max;
};

#ifdef __CUDACC__
inline constexpr int threads = 256;

/// One block per row: logits = x W, p = softmax(logits), error = p - one_hot(label), loss = -log p[label].
/// Sums in a fixed order, unlike atomicAdd, so that a disturbed run has the same bits as an undisturbed one.
__global__ void forward(step_data s) {
  __shared__ float parts[threads];
  __shared__ float logits[classes_max];
  const float* const x = s.images + static_cast<std::size_t>(blockIdx.x) * s.inputs;
  float part[classes_max] = {};
  for (int i = threadIdx.x; i < s.inputs; i += threads) {
    for (int c = 0; c < s.classes; ++c) part[c] += x[i] * s.weights[i * s.classes + c];
  }
  for (int c = 0; c < s.classes; ++c) {
    parts[threadIdx.x] = part[c];
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) logits[c] = parts[0];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  float highest = logits[0];
  for (int c = 1; c < s.classes; ++c) highest = fmaxf(highest, logits[c]);
  float sum = 0;
  for (int c = 0; c < s.classes; ++c) sum += expf(logits[c] - highest);
  for (int c = 0; c < s.classes; ++c) {
    const float p = expf(logits[c] - highest) / sum;
    const bool is_label = c == s.labels[blockIdx.x];
    s.error[blockIdx.x * s.classes + c] = p - (is_label ? 1.0F : 0.0F);
    if (is_label) s.losses[blockIdx.x] = -logf(fmaxf(p, 1e-20F));
  }
}

/// One thread per input: the gradient x^T error. The first thread also sums the losses.
__global__ void gradient(step_data s) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i == 0) {
    float* const loss = s.sums + static_cast<std::size_t>(s.inputs) * s.classes;
    for (int r = 0; r < s.rows; ++r) loss[0] += s.losses[r];
    loss[1] += static_cast<float>(s.rows);
  }
  if (i >= s.inputs) return;
  for (int c = 0; c < s.classes; ++c) {
    float sum = 0;
    for (int r = 0; r < s.rows; ++r)
      sum += s.images[static_cast<std::size_t>(r) * s.inputs + i] * s.error[r * s.classes + c];
    s.sums[i * s.classes + c] = sum;
  }
}

__global__ void update(step_data s) {
  const int i = blockIdx.x * threads + threadIdx.x;
  const int count = s.inputs * s.classes;
  if (i < count) s.weights[i] -= rate / fmaxf(s.sums[count + 1], 1.0F) * s.sums[i];
}

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
#endif

inline void forward_on_host(const step_data& s) {
  float* const loss = s.sums + static_cast<std::size_t>(s.inputs) * s.classes;
  for (int r = 0; r < s.rows; ++r) {
    const float* const x = s.images + static_cast<std::size_t>(r) * s.inputs;
    float logits[classes_max] = {};
    for (int i = 0; i < s.inputs; ++i) {
      for (int c = 0; c < s.classes; ++c) logits[c] += x[i] * s.weights[i * s.classes + c];
    }
    const float highest = *std::max_element(logits, logits + s.classes);
    float sum = 0;
    for (int c = 0; c < s.classes; ++c) sum += std::exp(logits[c] - highest);
    for (int c = 0; c < s.classes; ++c) {
      const float p = std::exp(logits[c] - highest) / sum;
      const bool is_label = c == s.labels[r];
      const float wrong = p - (is_label ? 1.0F : 0.0F);
      for (int i = 0; i < s.inputs; ++i) s.sums[i * s.classes + c] += x[i] * wrong;
      if (is_label) loss[0] -= std::log(std::max(p, 1e-20F));
    }
    loss[1] += 1;
  }
}

inline void update_on_host(const step_data& s) {
  const int count = s.inputs * s.classes;
  for (int i = 0; i < count; ++i) s.weights[i] -= rate / std::max(s.sums[count + 1], 1.0F) * s.sums[i];
}

/// Memory on the device that holds the batches.
class memory {
 public:
  explicit memory(bool on_host) : on_host_(on_host) {}
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;
  ~memory() = default;  // freed when the process ends

  void* zeros(std::size_t bytes) const {
    if (on_host_) return std::calloc(1, bytes);
    void* made = nullptr;
#ifdef __CUDACC__
    check(cudaMalloc(&made, bytes), "allocating");
    check(cudaMemset(made, 0, bytes), "clearing");
#endif
    return made;
  }
  /// Copies after all work queued before.
  void to_host(void* to, const void* from, std::size_t bytes) const {
    if (on_host_) std::memcpy(to, from, bytes);
#ifdef __CUDACC__
    if (!on_host_) check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying to the host");
#endif
  }
  void from_host(void* to, const void* from, std::size_t bytes) const {
    if (on_host_) std::memcpy(to, from, bytes);
#ifdef __CUDACC__
    if (!on_host_) check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device");
#endif
  }
  void clear(void* what, std::size_t bytes) const {
    if (on_host_) std::memset(what, 0, bytes);
#ifdef __CUDACC__
    if (!on_host_) check(cudaMemset(what, 0, bytes), "clearing");
#endif
  }

 private:
  bool on_host_;
};

/// Computes the gradient of this rank's rows, queued on the legacy default stream.
inline void run_forward(const step_data& s, bool on_host) {
  if (on_host) return forward_on_host(s);
#ifdef __CUDACC__
  if (s.rows > 0) forward<<<s.rows, threads>>>(s);
  gradient<<<(s.inputs + threads - 1) / threads, threads>>>(s);
  check(cudaGetLastError(), "computing the gradient");
#else
  throw std::runtime_error("this program was built without CUDA: use the host device");
#endif
}
inline void run_update(const step_data& s, bool on_host) {
  if (on_host) return update_on_host(s);
#ifdef __CUDACC__
  update<<<(s.inputs * s.classes + threads - 1) / threads, threads>>>(s);
  check(cudaGetLastError(), "updating the weights");
#endif
}

}  // namespace softmax
