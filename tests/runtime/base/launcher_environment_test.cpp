#include "runtime/base/launcher_environment.hpp"

#include "tests/runtime/base/launchers.hpp"

using namespace penstock;
using namespace penstock::launchers;

namespace {

std::string refusal(variables set) {
  const auto found = required_launcher_place(of(std::move(set)));
  if (found) return "accepted";
  CHECK(found.error().code == errc::config);
  return found.error().message;
}

}  // namespace

TEST_CASE("each launcher's variables give rank, world size and local rank") {
  const launcher_place t = place(torchrun);
  CHECK(t.launcher == "torchrun");
  CHECK(t.rank == 5);
  CHECK(t.world_size == 8);
  CHECK(t.local_rank == 1);
  CHECK(t.local_world_size == 4);
  CHECK(t.starts == 2);
  CHECK_FALSE(t.one_at_a_time);
  CHECK(t.job == "29500");
  const launcher_place m = place(openmpi);
  CHECK(m.launcher == "mpirun");
  CHECK(m.rank == 3);
  CHECK(m.local_world_size == 4);
  CHECK(m.job == "4711");
  const launcher_place h = place(hydra);
  CHECK(h.rank == 1);
  CHECK(h.local_rank == 1);
  CHECK(h.world_size == 2);
  const launcher_place s = place(slurm);
  CHECK(s.launcher == "srun");
  CHECK(s.rank == 6);
  CHECK(s.world_size == 7);
  CHECK(s.local_rank == 0);
  CHECK(s.local_world_size == 1);
  CHECK(s.job == "99.0");
  const launcher_place k = place({{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}});
  CHECK(k.launcher == "Kubernetes");
  CHECK(k.rank == 2);
  CHECK(k.local_rank == 0);
  const launcher_place p =
      place(with(torchrun, {{"PENSTOCK_GROUP", "mine"}, {"PENSTOCK_GROUP_STARTS", "7"}}));
  CHECK(p.launcher == "penstock launch");
  CHECK(p.job == "mine");
  CHECK(p.starts == 7);
  CHECK(p.one_at_a_time);
}

TEST_CASE("a Slurm batch script has a rank, but is not known to run in each rank") {
  CHECK(place(slurm).runs_in_each_rank);
  auto script = slurm;
  script.erase("SLURM_STEP_ID");
  CHECK(place(script).rank == 6);
  CHECK(place(script).world_size == 7);
  CHECK_FALSE(place(script).runs_in_each_rank);
}

TEST_CASE("inside a Slurm allocation the variables of mpirun and mpiexec count, not Slurm's") {
  const variables script{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "1"}};
  CHECK(place(with(script, openmpi)).rank == 3);
  CHECK(place(with(script, hydra)).rank == 1);
  // srun --mpi=pmi2 also sets PMI_RANK; only its own variables tell how many ranks a host has.
  CHECK(place(with(slurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}})).launcher == "srun");
}

TEST_CASE(
    "without a launcher there is no rank, and an error where one is needed lists the variables searched") {
  CHECK_FALSE(*launcher_place_in(of({})));
  const std::string why = refusal({});
  for (const char* name : {"RANK (torchrun)", "OMPI_COMM_WORLD_RANK (mpirun)", "PMI_RANK",
                           "SLURM_PROCID (srun)", "JOB_COMPLETION_INDEX (Kubernetes)"}) {
    CHECK(why.find(name) != std::string::npos);
  }
}

TEST_CASE("a missing or nonsensical variable is named, with the launchers that set it") {
  CHECK(refusal({{"RANK", "1"}}) == "RANK is set, but WORLD_SIZE is not: torchrun sets both");
  CHECK(refusal({{"JOB_COMPLETION_INDEX", "1"}}).find("in the pod's template") != std::string::npos);
  CHECK(refusal({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "2"}}) ==
        "SLURM_PROCID is 'x', which is not a whole number");
  CHECK(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}) ==
        "RANK is 4, but must be below WORLD_SIZE, which is 4");
  CHECK(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}).find("not a whole number") != std::string::npos);
  CHECK(refusal({{"RANK", "1"}, {"WORLD_SIZE", "99999999"}}).find("at most 1048576") != std::string::npos);
  CHECK(refusal(with(openmpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}})).find("4 ranks on this host") !=
        std::string::npos);
  const auto no = local_rank_of(place({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  REQUIRE_FALSE(no);
  CHECK(no.error().message ==
        "RANK is set, but LOCAL_RANK, the number of this rank on its host, is not; torchrun sets both");
  CHECK(local_rank_of(place(openmpi)).value() == 3);
}
