// Notices when user code loads CUDA into a worker: only the GPU owner uses the GPU. Used by the loader's lease_runner and
// by the job_runner, after each sample and each job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::child {

class cuda_watch {
 public:
  cuda_watch() { static_cast<void>(newly_loaded()); }

  /// Whether libcuda has appeared since the last call; true once at most. A look at one number while no library at all
  /// was loaded.
  [[nodiscard]] bool newly_loaded();
  /// It was noticed, or was there from the beginning. Final: the process should be replaced.
  [[nodiscard]] bool loaded() const noexcept { return loaded_; }

 private:
  unsigned long long libraries_seen_ = 0;
  bool loaded_ = false;
};

/// What is said of a sample or a job that did it: the rule first, then `reason`, if it failed on top.
std::string cuda_in_words(std::uint32_t worker, std::string_view reason);

}  // namespace penstock::child
