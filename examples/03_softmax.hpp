// Softmax regression on the GPU: one training step on a batch, for 03_train_softmax.cpp. The kernels are in
// 03_softmax.cu.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct softmax_step {
  const float* images;         // [rows, inputs]
  const std::int64_t* labels;  // [rows]
  int rows, inputs, classes;   // at most 16 classes
  float* weights;              // [inputs, classes]
  float* error;                // [rows, classes]: scratch
  float* loss;                 // the sum of all rows' losses is added to it
  float rate;
};

/// Enqueues one step of gradient descent on the stream.
cudaError_t train(const softmax_step& step, cudaStream_t stream);
