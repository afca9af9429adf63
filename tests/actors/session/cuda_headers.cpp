// Compiled only where CUDA's headers are installed: checks that the types in <penstock/cuda.hpp> are the toolkit's.
#include <penstock/cuda.hpp>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <type_traits>

namespace {

using namespace penstock;

static_assert(std::is_same_v<decltype(cuda::stream_of(stream_handle{})), cudaStream_t>);
static_assert(std::is_same_v<decltype(cuda::stream_of(stream_handle{})), CUstream>);
static_assert(sizeof(cuda::device_span<__half>) == 2 * sizeof(void*));
static_assert(cuda::dtype_of<__half>::value == dtype::float16);
static_assert(cuda::dtype_of<__nv_bfloat16>::value == dtype::bfloat16);

/// Never called: checks that overloads accept the arguments that programs have.
[[maybe_unused]] std::size_t as_programs_write_it(Batch& batch, cudaStream_t runtime, CUstream driver) {
  cuda::wait(batch, runtime);
  const cuda::batch_on_stream use(batch, driver);
  cuda::release(batch, cudaStreamPerThread);
  return cuda::tensor<__half>(batch, "image").size_bytes();
}

}  // namespace
