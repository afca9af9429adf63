// Sums over all ranks for 08_train_ranks.cpp: with NCCL if the ranks have GPUs, otherwise over the group's
// links.
#pragma once

#include <penstock/group.hpp>
#include <penstock/nccl.hpp>

#ifdef EXAMPLE_HAS_CUDA
#include <cuda_runtime.h>
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

/// The sum over all ranks, in rank order: bit for bit the same on every rank.
inline std::vector<double> sum_by_links(penstock::Group& group, const std::vector<double>& own) {
  std::vector<double> sum(own.size());
  for (const auto& bytes : group.all_gather(std::as_bytes(std::span(own)), std::chrono::seconds(60))) {
    std::vector<double> one(own.size());
    std::memcpy(one.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  return sum;
}

#ifdef EXAMPLE_HAS_CUDA
inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

inline bool gpu_is_there() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/// The sum over all ranks, in NCCL's order: also bit for bit the same on every rank.
inline std::vector<double> sum_by_nccl(penstock::Group& group, const std::vector<double>& own) {
  static double* const memory = [&] {
    double* made = nullptr;
    check(cudaSetDevice(static_cast<int>(group.local_rank())));
    check(cudaMalloc(&made, own.size() * sizeof(double)));
    return made;
  }();
  check(cudaMemcpy(memory, own.data(), own.size() * sizeof(double), cudaMemcpyHostToDevice));
  std::uint64_t number = 0;
  {
    const penstock::communicator_use use(*group.communicator());  // throws if a rank is lost
    number = use.number();
    use.all_reduce(memory, memory, own.size(), penstock::reduction::sum, penstock::stream_handle{});
  }  // the use ends here; the work on the stream continues
  std::vector<double> sum(own.size());
  check(cudaMemcpy(sum.data(), memory, sum.size() * sizeof(double), cudaMemcpyDeviceToHost));
  if (group.communicator()->is_lost(number)) {
    group.check();
    throw std::runtime_error("the communicator was lost");
  }
  return sum;
}
#else
inline bool gpu_is_there() {
  return false;
}
inline std::vector<double> sum_by_nccl(penstock::Group&, const std::vector<double>& own) {
  return own;  // never called
}
#endif

inline std::vector<double> sum_of_all(penstock::Group& group, const std::vector<double>& own) {
  return group.communicator() != nullptr ? sum_by_nccl(group, own) : sum_by_links(group, own);
}
