#include "runtime/device/cuda/cuda_context.hpp"

#include "runtime/base/layout.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/device/cuda/cuda_error.hpp"
#include "runtime/device/driver_library.hpp"

#include <thread>

namespace penstock::device {
namespace {

using namespace std::chrono_literals;

constexpr auto probe_deadline = 1s;
constexpr auto query_every = 100us;
constexpr auto queried_at_least_every = 10ms;  // less often if the thread gets no CPU time

// The driver API version of these types.
constexpr unsigned driver_interface = 12000;

template <class Function>
cudaError_t find_in_driver(const char* name, Function& function) {
  cudaDriverEntryPointQueryResult found{};
  const auto status = cudaGetDriverEntryPointByVersion(name, reinterpret_cast<void**>(&function),
                                                       driver_interface, cudaEnableDefault, &found);
  return status == cudaSuccess && function == nullptr ? cudaErrorSymbolNotFound : status;
}

/// The driver's own function, looked up without the runtime, which might create a context on the wrong
/// device.
void exchange_capture_mode(CUstreamCaptureMode& mode) {
  using function = CUresult(CUstreamCaptureMode*);
  static function* const exchange = [] {
    function* found = nullptr;
    driver_library("libcuda.so.1").find("cuThreadExchangeStreamCaptureMode", found);
    return found;
  }();
  if (exchange != nullptr) exchange(&mode);
}

}  // namespace

void relax_captures_of_this_thread() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  exchange_capture_mode(mode);
}

relaxed_captures::relaxed_captures() {
  exchange_capture_mode(mode_);
}

relaxed_captures::~relaxed_captures() {
  exchange_capture_mode(mode_);
}

cudaError_t wait_for_stream(cudaStream_t stream, nanoseconds at_most) {
  patient_deadline watched(at_most, queried_at_least_every);
  watched.restart(std::chrono::steady_clock::now());
  while (true) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status != cudaErrorNotReady || watched.is_over(std::chrono::steady_clock::now())) return status;
    std::this_thread::sleep_for(query_every);
  }
}

result<void> cuda_context::open() {
  const auto entry = [&](const char* name, auto& function) {
    return call(find_in_driver(name, function), fmt::format("looking up {} in the driver", name));
  };
  CUresult (*get_current)(CUcontext*) = nullptr;
  if (auto ok = entry("cuCtxGetCurrent", get_current); !ok) return ok;
  if (auto ok = entry("cuCtxPushCurrent", driver_.push); !ok) return ok;
  if (auto ok = entry("cuCtxPopCurrent", driver_.pop); !ok) return ok;
  if (auto ok = entry("cuStreamIsCapturing", driver_.is_capturing); !ok) return ok;
  get_current(&context_);
  if (auto ok = call(cudaStreamCreateWithFlags(&probe_stream_, cudaStreamNonBlocking), "creating a stream");
      !ok)
    return ok;
  return call(cudaMalloc(&probe_memory_, layout_alignment), "allocating a few bytes");
}

void cuda_context::close() noexcept {
  if (probe_stream_ != nullptr) cudaStreamDestroy(probe_stream_);
  probe_stream_ = nullptr;
  cudaFree(probe_memory_);
  probe_memory_ = nullptr;
}

void cuda_context::enter_for_good() const {
  relax_captures_of_this_thread();
  driver_.push(context_);
}

result<void> cuda_context::refuse_during_capture(cudaStream_t stream, std::string_view what) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // Uses the driver's function, because the runtime's would
  // leave an error for the program's next cudaGetLastError().
  const CUresult answer = driver_.is_capturing(stream, &status);
  if (answer == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    return refuse(errc::usage,
                  "{} on the legacy default stream, while a stream that waits for it is being captured into "
                  "a CUDA graph: end the capture first, or name another stream",
                  what);
  }
  // The next call will report any other error.
  if (answer != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return refuse(errc::usage,
                "{} on a stream that is being captured into a CUDA graph would become part of that graph: "
                "end the capture first, or name another stream",
                what);
}

failure cuda_context::failure_from(cudaError_t status, std::string_view what) {
  cudaGetLastError();
  failure why = cuda_failure(status, what);
  if (is_capture_error(status)) return why;  // such an error says nothing about the context
  const bool lost = probe_memory_ != nullptr && !answers();
  // Errors of copies and kernels are returned by a later call, whichever it is.
  if (lost && !what.ends_with(or_an_earlier_operation))
    why = cuda_failure(status, fmt::format("{}{}", what, or_an_earlier_operation));
  if (lost && why.code != errc::device_hardware) {
    why.code = errc::device_poisoned;
    why.message += "; the context is lost: only a new process can use the device again";
  } else if (!lost && why.code == errc::device_poisoned) {
    why.code = errc::device_unavailable;
  }
  return why;
}

result<void> cuda_context::call(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return {};
  return tl::unexpected(failure_from(status, what));
}

bool cuda_context::answers() {
  cudaGetLastError();
  const auto lives = [](cudaError_t status) { return status == cudaSuccess || is_capture_error(status); };
  const bool good = lives(cudaMemsetAsync(probe_memory_, 0, 1, probe_stream_)) &&
                    lives(wait_for_stream(probe_stream_, probe_deadline));
  cudaGetLastError();
  return good;
}

}  // namespace penstock::device
