// Which rank this process is, according to the environment that its launcher made (rule G1). For the meeting
// address see runtime/group/group_address.hpp. Pure: the environment is an argument.
//
//   launcher                  rank                    world size              local rank
//   penstock launch, torchrun RANK                    WORLD_SIZE              LOCAL_RANK
//   mpirun of OpenMPI         OMPI_COMM_WORLD_RANK    OMPI_COMM_WORLD_SIZE    OMPI_COMM_WORLD_LOCAL_RANK
//   mpiexec of MPICH (Hydra)  PMI_RANK                PMI_SIZE                MPI_LOCALRANKID
//   srun                      SLURM_PROCID            SLURM_NTASKS            SLURM_LOCALID
//   Kubernetes, indexed Job   JOB_COMPLETION_INDEX    WORLD_SIZE              LOCAL_RANK, else 0
//
// Checked in this order: mpirun and mpiexec inside a Slurm allocation also find Slurm's variables, which
// there describe the script or a helper on each node, not the rank.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace penstock {

/// Looks up a variable. Empty if it is not set.
using variable_lookup = std::function<std::optional<std::string>(const std::string& name)>;

struct launcher_place {
  std::string launcher;  ///< "torchrun", "srun", ...; for messages
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::optional<std::uint32_t> local_rank{};
  std::optional<std::uint32_t> local_world_size{};  ///< ranks on this host
  std::uint32_t starts = 0;                         ///< how many times the launcher had started this rank before
  bool one_at_a_time = false;                       ///< the launcher ends one process of this rank before it
                                                    ///< starts the next
  /// False: this may be a script that runs once for all ranks and also has their variables.
  bool runs_in_each_rank = true;
  std::string job{};                  ///< tells groups of one user apart; empty: the launcher has no variable for that
  std::string rank_variable{};        ///< the variable with the rank
  std::string size_variable{};        ///< the variable with the world size
  std::string local_rank_variable{};  ///< the variable that would have the local rank
};

/// Empty if no launcher started this process. Refuses (errc::config) a rank without a size, a value that is not
/// a number, and a rank outside its world, naming the variables and the launchers that set them.
result<std::optional<launcher_place>> launcher_place_in(const variable_lookup& variables);

/// Like launcher_place_in(), but also refuses if there is no launcher.
result<launcher_place> required_launcher_place(const variable_lookup& variables);

/// Refuses if the launcher does not provide the local rank.
result<std::uint32_t> local_rank_of(const launcher_place& place);

}  // namespace penstock
