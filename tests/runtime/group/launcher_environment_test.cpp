#include "runtime/group/launcher_environment.hpp"

#include "runtime/group/group_address.hpp"

#include <catch2/catch_test_macros.hpp>

#include <map>

using namespace penstock;
using namespace penstock::group;

namespace {

using variables = std::map<std::string, std::string>;

environment of(variables set) {
  return [set = std::move(set)](const std::string& name) -> std::optional<std::string> {
    const auto at = set.find(name);
    if (at == set.end()) return std::nullopt;
    return at->second;
  };
}

launcher_place place(variables set) {
  const auto found = place_in(of(std::move(set)));
  REQUIRE(found);
  REQUIRE(*found);
  return **found;
}

std::string refusal(variables set) {
  const auto found = place_required(of(std::move(set)));
  if (found) return "accepted";
  CHECK(found.error().code == errc::config);
  return found.error().message;
}

const variables torchrun{{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "none"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"}};
const variables openmpi{{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_NAMESPACE", "4711"}};
const variables hydra{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const variables slurm{{"SLURM_PROCID", "6"},
                      {"SLURM_NTASKS", "7"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "2"},
                      {"SLURM_JOB_ID", "99"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_TASKS_PER_NODE", "3(x2),1"},
                      {"SLURM_JOB_NODELIST", "gpu[03-04,9],login"}};

variables with(variables set, const variables& more) {
  for (const auto& [name, value] : more) set[name] = value;
  return set;
}
variables without(variables set, const std::string& name) {
  set.erase(name);
  return set;
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
  CHECK_FALSE(*place_in(of({})));
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

TEST_CASE("ranks on one host meet at an abstract socket that only they use") {
  const group_address a = address_of(place(openmpi), of(openmpi), 1000, "train").value();
  CHECK(a.what == group_address::kind::abstract_socket);
  CHECK(a.name == "penstock-group/1000/4711/train");
  CHECK_FALSE(address_of(place(openmpi), of(openmpi), 1000, "validate").value() == a);
  CHECK_FALSE(address_of(place(openmpi), of(openmpi), 1001, "train").value() == a);
  CHECK(address_of(place(openmpi), of(openmpi), 1000, std::string(200, 's')).value().name.size() <= 107);
}

TEST_CASE("ranks on several hosts meet at the first host, at a port that torch does not use") {
  const group_address s = address_of(place(slurm), of(slurm), 0, "train").value();
  CHECK(s.what == group_address::kind::tcp);
  CHECK(s.name == "gpu03");
  CHECK(s.port >= 20'000);
  CHECK(s.port < 32'000);
  for (const auto& [list, first] :
       variables{{"a1,b[2-3]", "a1"}, {"n7", "n7"}, {"n[7]", "n7"}, {"r[1,2]x", "r1"}})
    CHECK(
        address_of(place(slurm), of(with(slurm, {{"SLURM_STEP_NODELIST", list}})), 0, "train").value().name ==
        first);
  const variables named = with(torchrun, {{"TORCHELASTIC_RUN_ID", "job7"}});
  const group_address t = address_of(place(named), of(named), 0, "train").value();
  CHECK(t.name == "node0");
  variables taken = with(named, {{"PENSTOCK_GROUP", "job7"}, {"MASTER_PORT", "1"}});
  const std::uint16_t port = address_of(place(taken), of(taken), 0, "train").value().port;
  taken["MASTER_PORT"] = std::to_string(port);
  CHECK(address_of(place(taken), of(taken), 0, "train").value().port != port);
}

TEST_CASE("a given address is used, and a missing one is requested") {
  const auto at = [](const char* given) {
    return address_of(place(openmpi), of(with(openmpi, {{"PENSTOCK_GROUP_ADDR", given}})), 0, "train");
  };
  CHECK(at("node7:5000").value() == group_address{group_address::kind::tcp, "node7", 5000});
  CHECK(at("[::1]:5000").value() == group_address{group_address::kind::tcp, "::1", 5000});
  CHECK(at("@mine").value() ==
        group_address{group_address::kind::abstract_socket, "penstock-group/0/mine/train", 0});
  CHECK(at("unix:@mine").value() == at("@mine").value());
  for (const char* same : {"node7:5000", "[::1]:5000"}) CHECK(text_of(at(same).value()) == same);
  CHECK(text_of(at("@mine").value()) == "@penstock-group/0/mine/train");
  for (const char* nonsense :
       {"node7", "unix:@", "[]:1", "node7:70000", "node7:1x", ":5000", "node7:", "node7:99999", "@", ""})
    CHECK_FALSE(at(nonsense));
  CHECK_FALSE(at(("@" + std::string(108, 'n')).c_str()));
  const variables nowhere = without(torchrun, "MASTER_ADDR");
  CHECK(address_of(place(nowhere), of(nowhere), 0, "train").error().message.find("set MASTER_ADDR") !=
        std::string::npos);
  const variables nameless = with(hydra, {{"PMI_SIZE", "4"}, {"MASTER_ADDR", "node0"}});
  CHECK(address_of(place(nameless), of(nameless), 0, "train").error().message.find("set PENSTOCK_GROUP") !=
        std::string::npos);
}

TEST_CASE("two sessions of one program meet at two sockets, even if the socket is given") {
  const auto at = [](const char* session) {
    return address_of(place(openmpi), of(with(openmpi, {{"PENSTOCK_GROUP_ADDR", "@mine"}})), 0, session)
        .value();
  };
  CHECK(at("train") == at("train"));
  CHECK(at("train").name != at("validation").name);
}
