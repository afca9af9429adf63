// Notices when user code brings CUDA into a worker: only the GPU owner uses the GPU. Used by the loader's
// lease_runner and by the job_runner, after each sample and each job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace penstock::child {

class cuda_watch {
 public:
  /// What counts: libcuda in this process, or that somebody has made it ready for use. Libraries that can do both, as
  /// PyTorch's builds for CUDA, are linked to libcuda: with them its presence says nothing.
  enum class sign : std::uint8_t { loaded, initialised };

  explicit cuda_watch(sign what = sign::loaded) : what_(what) { static_cast<void>(newly_found()); }

  /// Whether the sign was found since the last call; true at most once. Cheap: compares one counter unless some library
  /// was loaded, and asks libcuda for one number while it is there and not initialised.
  [[nodiscard]] bool newly_found();
  /// Whether it was found, at the start or later. Never becomes false again: the process should be replaced.
  [[nodiscard]] bool found() const noexcept { return found_; }

 private:
  using device_count = int (*)(int*);
  struct closer {
    void operator()(void* library) const;
  };

  sign what_;
  unsigned long long libraries_seen_ = 0;
  std::unique_ptr<void, closer>
      library_;  // a libcuda that is not initialised: it stays while its function is called
  device_count count_devices_ = nullptr;
  bool found_ = false;
};

/// The message for a sample or job that loaded CUDA: the rule, then `reason` if it failed as well.
std::string cuda_text(std::uint32_t worker, std::string_view reason);

}  // namespace penstock::child
