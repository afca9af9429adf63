// Detects user code that brings CUDA into a worker: only the GPU owner uses the GPU. Used by the loader's
// lease_runner and by the job_runner, after each sample and each job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace penstock::child {

class cuda_watch {
 public:
  /// The sign to watch for: libcuda is loaded in this process, or some code has initialised it. CUDA builds
  /// of libraries such as PyTorch link libcuda; where a worker imports them, only the second sign proves
  /// anything.
  enum class sign : std::uint8_t { loaded, initialised };

  explicit cuda_watch(sign what = sign::loaded) : what_(what) { static_cast<void>(newly_found()); }

  /// Whether the sign appeared since the last call; true at most once. Cheap: compares one counter unless a
  /// library was loaded. While libcuda is loaded but not initialised, also makes one call to it.
  [[nodiscard]] bool newly_found();
  /// Whether the sign has ever appeared. Never becomes false again: the process should be replaced.
  [[nodiscard]] bool found() const noexcept { return found_; }

 private:
  using device_count = int (*)(int*);
  struct closer {
    void operator()(void* library) const;
  };

  sign what_;
  unsigned long long libraries_seen_ = 0;
  std::unique_ptr<void, closer> library_;  // keeps an uninitialised libcuda loaded while we call its function
  device_count count_devices_ = nullptr;
  bool found_ = false;
};

/// The message for a sample or job that loaded CUDA: the rule, then `reason` if the sample or job failed as
/// well.
std::string cuda_text(std::uint32_t worker, std::string_view reason);

}  // namespace penstock::child
