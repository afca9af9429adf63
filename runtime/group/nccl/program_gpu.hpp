// The GPU of a program that embeds penstock, as NCCL will have it: the context that is current on the program's thread, or
// else the primary context of the GPU with its local rank. By the driver alone, which is opened at run time, so that a
// program in a group needs no CUDA runtime of penstock's. Used by program_communicator.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::group {

class program_gpu {
 public:
  /// On the program's thread, whose state stays as it is. `local_rank` counts on from the first GPU again where there are
  /// fewer. A primary context that is created here stays until the process ends. Refuses (errc::config) where there is no
  /// GPU or no driver, or it is not known which one is meant.
  static result<program_gpu> find(std::optional<std::uint32_t> local_rank);

  /// Makes it the calling thread's current device, and lets the thread make calls while others capture a CUDA graph.
  void select() const;
  /// "GPU-..."; empty if the driver does not say.
  [[nodiscard]] const std::string& uuid() const noexcept { return uuid_; }

 private:
  void* context_ = nullptr;
  std::string uuid_;
};

}  // namespace penstock::group
