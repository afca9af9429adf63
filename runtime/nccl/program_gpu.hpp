// The GPU that NCCL uses in a program that embeds penstock: that of the context that is current on the
// program's thread, or else the GPU numbered by its local rank, with its primary context. Uses only the driver,
// opened at run time, so that a program in a group needs no CUDA runtime from penstock. Used by
// program_communicator.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::group {

class program_gpu {
 public:
  /// Call it on the program's thread, whose state it does not change. `local_rank` wraps around if there are
  /// fewer GPUs. A primary context that is created here stays until the process ends. Refuses (errc::config)
  /// if there is no GPU or driver, or if it is unclear which GPU is meant.
  static result<program_gpu> find(std::optional<std::uint32_t> local_rank);

  /// Makes the GPU the calling thread's current device, and allows this thread to call CUDA while other
  /// threads capture a graph.
  void select() const;
  /// "GPU-..."; empty if the driver does not say.
  [[nodiscard]] const std::string& uuid() const noexcept { return uuid_; }

 private:
  void* context_ = nullptr;
  std::string uuid_;
};

}  // namespace penstock::group
