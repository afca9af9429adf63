#include "runtime/device/cuda/cuda_error.hpp"

namespace penstock::device {

bool is_sticky(cudaError_t code) noexcept {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContextIsDestroyed:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable: return true;
    default: return false;
  }
}

bool is_capture_error(cudaError_t code) noexcept {
  return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
}

errc kind_of(cudaError_t code) noexcept {
  if (is_capture_error(code)) return errc::usage;
  switch (code) {
    case cudaErrorMemoryAllocation: return errc::device_out_of_memory;
    case cudaErrorNoKernelImageForDevice: return errc::device_image;
    case cudaErrorDevicesUnavailable: return errc::device_busy;
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError: return errc::device_hardware;
    default: return is_sticky(code) ? errc::device_poisoned : errc::device_unavailable;
  }
}

failure taken_failure(cudaError_t code, int ordinal, std::string_view compute_mode, std::string_view users) {
  failure why = cuda_failure(code, fmt::format("creating a context on cuda:{}", ordinal));
  why.message += fmt::format("; its compute mode is '{}', and it is in use by {}", compute_mode, users);
  return why;
}

failure cuda_failure(cudaError_t code, std::string_view what) {
  return {kind_of(code),
          fmt::format("{}: {} (CUDA error {})", what, cudaGetErrorString(code), static_cast<int>(code)),
          static_cast<int>(code)};
}

}  // namespace penstock::device
