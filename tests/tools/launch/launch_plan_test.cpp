#include "tools/penstock/launch/launch_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>

using namespace penstock;
using namespace penstock::cli;

namespace {

std::vector<int> cores(int first, int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// Two sockets with eight cores and two GPUs each.
std::vector<launch_gpu> four_gpus() {
  std::vector<launch_gpu> all;
  for (std::uint32_t i = 0; i < 4; ++i)
    all.push_back({i, "H100", "GPU-" + std::string(1, static_cast<char>('a' + i)), cores(i < 2 ? 0 : 8, 8)});
  return all;
}

std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  std::string found = "(unset)";
  for (const std::string& variable : environment) {
    if (!variable.starts_with(name + "=")) continue;
    CHECK(found == "(unset)");  // if it were set twice, each program would decide which one counts
    found = variable.substr(name.size() + 1);
  }
  return found;
}

}  // namespace

TEST_CASE("the option for GPUs is all, a list of numbers, or host with a number of ranks") {
  CHECK(parse_gpu_choice("all")->which == gpu_choice::kind::all);
  CHECK(parse_gpu_choice("0,2,3")->ordinals == std::vector<std::uint32_t>{0, 2, 3});
  CHECK(parse_gpu_choice("host:4")->host_ranks == 4);
  for (const char* bad :
       {"", "0,", "a", "-1", "0,0", "host:", "host:0", "host:-1", "host:1000000", "1.5", "ALL"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_gpu_choice(bad));
    CHECK(parse_gpu_choice(bad).error().code == errc::usage);
  }
}

TEST_CASE("ranks share the cores near their GPUs, in whole cores and without overlap") {
  const auto places = plan_places({}, four_gpus(), cores(0, 16)).value();
  REQUIRE(places.size() == 4);
  CHECK(places[0].cores == cores(0, 4));
  CHECK(places[1].cores == cores(4, 4));
  CHECK(places[2].cores == cores(8, 4));
  CHECK(places[3].cores == cores(12, 4));
  const auto two = plan_places({gpu_choice::kind::some, {3, 0}, 0}, four_gpus(), cores(0, 16)).value();
  CHECK(two[0].gpu->uuid == "GPU-d");
  CHECK(two[0].cores == cores(8, 8));
  CHECK(two[1].cores == cores(0, 8));
}

TEST_CASE("only cores that we may use are shared, and no rank is bound with too few cores or only one rank") {
  const auto places = plan_places({gpu_choice::kind::host, {}, 3}, {}, {1, 3, 5, 7}).value();
  CHECK(places[0].cores == std::vector<int>{1, 3});
  CHECK(places[1].cores == std::vector<int>{5});
  CHECK(places[2].cores == std::vector<int>{7});
  const auto crowded = plan_places({gpu_choice::kind::host, {}, 3}, {}, {0, 1}).value();
  for (const rank_place& place : crowded) CHECK(place.cores.empty());
  CHECK(plan_places({gpu_choice::kind::host, {}, 1}, {}, cores(0, 8)).value()[0].cores.empty());
}

TEST_CASE("ranks whose near cores are unknown or forbidden share all cores with the others") {
  auto gpus = four_gpus();
  gpus[3].cores.clear();
  const auto places = plan_places({}, gpus, cores(0, 16)).value();
  std::vector<int> seen;
  for (const rank_place& place : places) {
    CHECK(place.cores.size() == 4);
    seen.insert(seen.end(), place.cores.begin(), place.cores.end());
  }
  std::ranges::sort(seen);
  CHECK(seen == cores(0, 16));
}

TEST_CASE("a GPU that does not exist is refused with a list of those that do") {
  const auto none = plan_places({gpu_choice::kind::some, {4}, 0}, four_gpus(), cores(0, 16));
  REQUIRE_FALSE(none);
  CHECK(none.error().message ==
        "--gpus: there is no GPU 4; available: 0 (H100), 1 (H100), 2 (H100), 3 (H100)");
  const auto no_gpu = plan_places({}, {}, cores(0, 2));
  REQUIRE_FALSE(no_gpu);
  CHECK(no_gpu.error().message.find("--gpus host:N") != std::string::npos);
}

TEST_CASE("a rank's environment equals torchrun's, and device LOCAL_RANK is its own GPU") {
  const auto places = plan_places({gpu_choice::kind::some, {2, 1}, 0}, four_gpus(), cores(0, 16)).value();
  const auto rank = rank_environment({"HOME=/root", "RANK=7", "CUDA_VISIBLE_DEVICES=0,1,2,3"},
                                     {"job", "127.0.0.1", 29500, 1, 3}, places, 1);
  CHECK(value_of(rank, "HOME") == "/root");
  CHECK(value_of(rank, "RANK") == "1");
  CHECK(value_of(rank, "LOCAL_RANK") == "1");
  CHECK(value_of(rank, "WORLD_SIZE") == "2");
  CHECK(value_of(rank, "LOCAL_WORLD_SIZE") == "2");
  CHECK(value_of(rank, "MASTER_ADDR") == "127.0.0.1");
  CHECK(value_of(rank, "MASTER_PORT") == "29500");
  CHECK(value_of(rank, "TORCHELASTIC_RESTART_COUNT") == "1");
  CHECK(value_of(rank, "PENSTOCK_GROUP") == "job");
  CHECK(value_of(rank, "CUDA_VISIBLE_DEVICES") == "GPU-c,GPU-b");
  const auto host = plan_places({gpu_choice::kind::host, {}, 2}, {}, cores(0, 2)).value();
  CHECK(
      value_of(rank_environment({}, {"job", "127.0.0.1", 1, 0, 0}, host, 0), "CUDA_VISIBLE_DEVICES").empty());
}
