// CUDA's codes as failures. No GPU is needed: codes and their texts come from the runtime library.
#include "runtime/device/cuda/cuda_error.hpp"

#include "runtime/device/nvml.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

using namespace penstock;
using namespace penstock::device;

TEST_CASE("a code maps to the kind of failure that decides how it is handled") {
  CHECK(kind_of(cudaErrorMemoryAllocation) == errc::device_out_of_memory);
  CHECK(kind_of(cudaErrorNoKernelImageForDevice) == errc::device_image);
  CHECK(kind_of(cudaErrorDevicesUnavailable) == errc::device_busy);
  CHECK(kind_of(cudaErrorECCUncorrectable) == errc::device_hardware);
  CHECK(kind_of(cudaErrorIllegalAddress) == errc::device_poisoned);
  CHECK(kind_of(cudaErrorInvalidValue) == errc::device_unavailable);
}

TEST_CASE("an error of a stream capture is a mistake in the program and never loses the context") {
  for (int code = 900; code <= 908; ++code) {
    CAPTURE(code);
    CHECK(is_capture_error(static_cast<cudaError_t>(code)));
    CHECK_FALSE(is_sticky(static_cast<cudaError_t>(code)));
    CHECK(kind_of(static_cast<cudaError_t>(code)) == errc::usage);
  }
  CHECK_FALSE(is_capture_error(static_cast<cudaError_t>(899)));
  CHECK_FALSE(is_capture_error(cudaErrorTimeout));
  CHECK(std::string_view(cudaGetErrorName(cudaErrorStreamCaptureUnsupported)) ==
        "cudaErrorStreamCaptureUnsupported");
}

TEST_CASE("a GPU in exclusive use is refused with its compute mode and the pid of its user") {
  const std::string users = in_words({{::getpid(), 512U << 20U}});
  const failure why = taken_failure(cudaErrorDevicesUnavailable, 0, "exclusive process", users);
  CHECK(why.code == errc::device_busy);
  CHECK(why.message.find("CUDA error 46") != std::string::npos);
  CHECK(why.message.find("'exclusive process'") != std::string::npos);
  CHECK(why.message.find("pid " + std::to_string(::getpid())) != std::string::npos);
}
