// Which cores workers run on, and on which memory node their slots lie ([loader] affinity).
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::process {

/// The memory node to which a GPU is attached.
struct gpu_place {
  int node = 0;
  std::vector<int> cores;  ///< the node's cores

  bool operator==(const gpu_place&) const = default;
};

/// Finds the GPU that `device` ([gpu] device) names, in files of the driver and the kernel below `root`, without calling
/// CUDA. `visible` is CUDA_VISIBLE_DEVICES, null if it is not set. Empty if there is no GPU, if
/// the kernel knows only one memory node, or if several GPUs on different nodes may be meant.
[[nodiscard]] std::optional<gpu_place> find_gpu_place(const std::string& device, const char* visible,
                                                      const std::filesystem::path& root = "/");

/// The cores and the memory node of a session's workers. Pure.
struct worker_cores {
  std::vector<int> cores{};   ///< empty: workers run wherever this process may
  std::optional<int> node{};  ///< where slots are allocated, if there is room
  /// True: all workers run on `cores`; false: only as many workers as there are cores do.
  bool listed = false;

  /// The cores of the worker in a place; empty: all that this process may use.
  [[nodiscard]] std::vector<int> of(std::uint32_t place) const;
  /// The cores of the process with the GPU; empty: all that this process may use.
  [[nodiscard]] std::vector<int> of_owner() const { return listed ? std::vector<int>() : cores; }
};

/// `allowed`: the cores that this process may use. Refuses (errc::config) a listed core that is not among them.
[[nodiscard]] result<worker_cores> plan_cores(const core_choice& choice, const std::vector<int>& allowed,
                                              const std::optional<gpu_place>& gpu);

/// Calls plan_cores() with the cores that this process may use, and the memory node of this GPU.
[[nodiscard]] result<worker_cores> plan_cores(const core_choice& choice, const std::string& device);

}  // namespace penstock::process
