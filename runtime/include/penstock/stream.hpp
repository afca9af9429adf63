// A stream of the consumer as an opaque handle, so that penstock can be used without CUDA headers.
// <penstock/cuda.hpp> makes one from a cudaStream_t. On the host device every stream is the null stream.
#pragma once

namespace penstock {

struct stream_handle {
  void* native = nullptr;  ///< a cudaStream_t; null is the legacy default stream
};

}  // namespace penstock
