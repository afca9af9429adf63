// Plans each rank of a group: its GPU, its cores, its environment. Pure.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// --gpus: "all", "0,2,3", or "host:4" for ranks without a GPU.
struct gpu_choice {
  enum class kind : std::uint8_t { all, some, host };
  kind which = kind::all;
  std::vector<std::uint32_t> ordinals;  ///< for kind `some`: CUDA's numbers of visible devices, each once
  std::uint32_t host_ranks = 0;
};
inline constexpr std::uint32_t launch_ranks_max = 1024;

/// Refuses (errc::usage) anything else, and an ordinal given twice.
[[nodiscard]] result<gpu_choice> parse_gpu_choice(std::string_view text);

/// A visible GPU, and the cores near it.
struct launch_gpu {
  std::uint32_t ordinal = 0;
  std::string name;
  std::string uuid;
  std::vector<int> cores;  ///< the cores of the GPU's NUMA node; empty: unknown
};

struct rank_place {
  std::optional<launch_gpu> gpu{};
  std::vector<int> cores{};  ///< the cores that the rank may use; empty: all of ours
};

/// One place per rank. `allowed`: the cores that we may use. Ranks whose GPUs are near the same cores share
/// those, in whole cores; with fewer cores than ranks, no rank is bound. Refuses (errc::usage) a nonexistent
/// ordinal, listing the GPUs, and "all" without a GPU.
[[nodiscard]] result<std::vector<rank_place>> plan_places(const gpu_choice& choice,
                                                          const std::vector<launch_gpu>& gpus,
                                                          const std::vector<int>& allowed);

struct launch_names {
  std::string group;        ///< PENSTOCK_GROUP
  std::string master_addr;  ///< MASTER_ADDR
  std::uint16_t master_port = 0;
  std::uint32_t restarts = 0;      ///< restarts of all ranks together
  std::uint32_t restarts_max = 0;  ///< --max-restarts
  std::string group_address{};     ///< PENSTOCK_GROUP_ADDR
  std::string group_secret{};  ///< PENSTOCK_GROUP_SECRET: never on a command line, which all users can read
  std::uint32_t starts = 0;    ///< PENSTOCK_GROUP_STARTS: number of earlier starts of this rank
};

/// `base` with the variables of this rank, named as by torchrun. CUDA_VISIBLE_DEVICES lists all chosen GPUs
/// in rank order, so that device LOCAL_RANK is the rank's own; for ranks without a GPU it is empty.
[[nodiscard]] std::vector<std::string> rank_environment(std::vector<std::string> base,
                                                        const launch_names& names,
                                                        const std::vector<rank_place>& places,
                                                        std::uint32_t rank);

}  // namespace penstock::cli
