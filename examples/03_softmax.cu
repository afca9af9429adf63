// The kernels of 03_train_softmax, kept as simple as possible.
#include "03_softmax.hpp"

#include <cstddef>

namespace {

constexpr int classes_max = 16;
constexpr int threads = 256;

/// One block per row: logits = x W, p = softmax(logits), error = p - one_hot(label), loss += -log p[label].
__global__ void forward(softmax_step s) {
  __shared__ float logits[classes_max];
  if (threadIdx.x < classes_max) logits[threadIdx.x] = 0;
  __syncthreads();
  const float* const x = s.images + static_cast<std::size_t>(blockIdx.x) * s.inputs;
  float part[classes_max] = {};
  for (int i = threadIdx.x; i < s.inputs; i += threads) {
    for (int c = 0; c < s.classes; ++c) part[c] += x[i] * s.weights[i * s.classes + c];
  }
  for (int c = 0; c < s.classes; ++c) atomicAdd(&logits[c], part[c]);
  __syncthreads();
  if (threadIdx.x != 0) return;
  float highest = logits[0];
  for (int c = 1; c < s.classes; ++c) highest = fmaxf(highest, logits[c]);
  float sum = 0;
  for (int c = 0; c < s.classes; ++c) sum += expf(logits[c] - highest);
  for (int c = 0; c < s.classes; ++c) {
    const float p = expf(logits[c] - highest) / sum;
    const bool is_label = c == s.labels[blockIdx.x];
    s.error[blockIdx.x * s.classes + c] = p - (is_label ? 1.0F : 0.0F);
    if (is_label) atomicAdd(s.loss, -logf(fmaxf(p, 1e-20F)));
  }
}

/// One thread per input: W -= rate / rows * x^T error.
__global__ void update(softmax_step s) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i >= s.inputs) return;
  for (int c = 0; c < s.classes; ++c) {
    float gradient = 0;
    for (int r = 0; r < s.rows; ++r)
      gradient += s.images[static_cast<std::size_t>(r) * s.inputs + i] * s.error[r * s.classes + c];
    s.weights[i * s.classes + c] -= s.rate / static_cast<float>(s.rows) * gradient;
  }
}

}  // namespace

cudaError_t train(const softmax_step& step, cudaStream_t stream) {
  forward<<<step.rows, threads, 0, stream>>>(step);
  update<<<(step.inputs + threads - 1) / threads, threads, 0, stream>>>(step);
  return cudaGetLastError();
}
