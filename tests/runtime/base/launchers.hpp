// The environments of ranks as their launchers make them, for tests.
#pragma once

#include "runtime/base/launcher_environment.hpp"

#include <catch2/catch_test_macros.hpp>

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace penstock::launchers {

using variables = std::map<std::string, std::string>;

inline variable_lookup of(variables set) {
  return [set = std::move(set)](const std::string& name) -> std::optional<std::string> {
    const auto at = set.find(name);
    if (at == set.end()) return std::nullopt;
    return at->second;
  };
}

inline launcher_place place(variables set) {
  const auto found = launcher_place_in(of(std::move(set)));
  REQUIRE(found);
  REQUIRE(*found);
  return **found;
}

inline const variables torchrun{{"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "29500"},
                                {"TORCHELASTIC_RUN_ID", "none"},
                                {"TORCHELASTIC_RESTART_COUNT", "2"}};
inline const variables openmpi{{"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                               {"PMIX_NAMESPACE", "4711"}};
inline const variables hydra{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
inline const variables slurm{{"SLURM_PROCID", "6"},
                             {"SLURM_NTASKS", "7"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", "2"},
                             {"SLURM_JOB_ID", "99"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_TASKS_PER_NODE", "3(x2),1"},
                             {"SLURM_JOB_NODELIST", "gpu[03-04,9],login"}};

inline variables with(variables set, const variables& more) {
  for (const auto& [name, value] : more) set[name] = value;
  return set;
}
inline variables without(variables set, const std::string& name) {
  set.erase(name);
  return set;
}

}  // namespace penstock::launchers
