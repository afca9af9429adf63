// The primary context of the chosen GPU, shared with the embedding program: makes calls on the program's
// threads without changing their state or disturbing the program's stream captures, and decides whether an
// error has destroyed the context. Used by the CUDA device.
//
// Stream capture. While a program captures a CUDA graph in the default mode of CUDA and PyTorch (global),
// "potentially unsafe" calls - event queries, allocations, registering memory - are forbidden on every thread that
// is not in relaxed mode: such a call fails with error 900 and invalidates the program's capture. So the owner's
// thread is in relaxed mode from its first call on (see select_gpu), and the consumer's thread during each of our
// calls. The alarm's thread makes no CUDA call.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string_view>

namespace penstock::device {

/// Part of the message of an asynchronous error, which a later call returned.
inline constexpr std::string_view or_an_earlier_operation = ", or an earlier operation";

/// From now on, the calling thread may make any call while other threads capture. Call it after the driver has been
/// initialised (cudaGetDeviceCount does that); creates no context. Does nothing if the driver does not support captures.
void relax_captures_of_this_thread();

/// Relaxes the calling thread's captures for the lifetime of the object, then restores the thread's mode.
class relaxed_captures {
 public:
  relaxed_captures();
  ~relaxed_captures();
  relaxed_captures(const relaxed_captures&) = delete;
  relaxed_captures& operator=(const relaxed_captures&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the mode to restore
};

/// Polls the stream instead of blocking in the driver, because a call into a hung device would never return. Returns
/// cudaErrorNotReady after `at_most`.
cudaError_t wait_for_stream(cudaStream_t stream, nanoseconds at_most);

class cuda_context {
  struct entry_points {
    CUresult (*push)(CUcontext) = nullptr;
    CUresult (*pop)(CUcontext*) = nullptr;
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus*) = nullptr;
  };

 public:
  /// Call on the owner's thread, with the GPU selected.
  result<void> open();
  /// Frees what open() created.
  void close() noexcept;

  /// The scope of a call on one of the program's threads: our context is current, and captures are relaxed. It uses
  /// the driver's stack of contexts: restoring with cudaSetDevice would create a context on whichever device the
  /// thread had selected.
  class visit {
   public:
    explicit visit(const cuda_context& ours) : driver_(ours.driver_) { driver_.push(ours.context_); }
    ~visit() {
      CUcontext ours{};
      driver_.pop(&ours);
    }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;

   private:
    const relaxed_captures relaxed_;
    const entry_points& driver_;
  };

  /// Call on one of our threads. Makes our context current on the thread, and relaxes the thread's captures
  /// permanently.
  void enter_for_good() const;

  /// Refuses (errc::usage) if work queued on the stream now would become part of a graph or would invalidate a
  /// capture. The latter happens if the stream is ordered with a captured one: the legacy default stream is ordered
  /// with every blocking stream. Call within a visit. Disturbs no capture.
  [[nodiscard]] result<void> refuse_during_capture(cudaStream_t stream, std::string_view what) const;

  /// The failure for a status. Tests the device to find the kind of
  /// failure: the code alone does not tell whether the context still works.
  [[nodiscard]] failure failure_from(cudaError_t status, std::string_view what);
  /// Success, or failure_from(status).
  result<void> call(cudaError_t status, std::string_view what);
  /// Whether a trivial operation works, on a stream that nothing else uses.
  [[nodiscard]] bool answers();

 private:
  entry_points driver_;
  CUcontext context_ = nullptr;
  cudaStream_t probe_stream_ = nullptr;
  void* probe_memory_ = nullptr;
};

}  // namespace penstock::device
