#include "runtime/device/cuda/convert_batch.hpp"

#include "runtime/device/cuda/convert.hpp"
#include "runtime/device/cuda/kernel_step.hpp"

namespace penstock::device {

cudaError_t queue_conversions(const transfer_plan& plan, const std::byte* staging, std::byte* data,
                              std::uint32_t rows, const batch_extents& extents, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  for (const copy_step& step : plan.copies) {
    const auto status =
        cudaMemcpyAsync(data + step.to, staging + step.from, plan.row_bytes(step.tensor, extents) * rows,
                        cudaMemcpyDeviceToDevice, stream);
    if (status != cudaSuccess) return status;
  }
  for (const convert_step& step : plan.conversions) {
    const auto status = launch_convert(kernel_step_of(step, staging, data, rows), stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace penstock::device
