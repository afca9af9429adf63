// Notices when user code loads CUDA into a worker: only the GPU owner uses the GPU. Used by the loader's
// lease_runner and by the job_runner, after each sample and each job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::child {

class cuda_watch {
 public:
  cuda_watch() { static_cast<void>(newly_loaded()); }

  /// Whether libcuda was loaded since the last call; true at most once. Cheap: compares one counter unless
  /// some library was loaded.
  [[nodiscard]] bool newly_loaded();
  /// Whether libcuda is loaded, since the start or noticed later. Never becomes false again: the process
  /// should be replaced.
  [[nodiscard]] bool loaded() const noexcept { return loaded_; }

 private:
  unsigned long long libraries_seen_ = 0;
  bool loaded_ = false;
};

/// The message for a sample or job that loaded CUDA: the rule, then `reason` if it failed as well.
std::string cuda_text(std::uint32_t worker, std::string_view reason);

}  // namespace penstock::child
