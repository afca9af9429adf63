#include "runtime/process/cores.hpp"

#include "runtime/process/process_facts.hpp"
#include "tests/runtime/base/scratch_folder.hpp"

#include <catch2/catch_test_macros.hpp>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace penstock::process;

namespace {

/// The CPU time and the cores of a machine with eight cores and these files.
std::pair<double, std::uint32_t> usable_with(const std::vector<std::pair<std::string, std::string>>& files) {
  const penstock::testing::scratch_folder folder;
  const std::filesystem::path root = folder.path();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  write("proc/self/status", "Name:\tpenstock\nCpus_allowed_list:\t0-7\n");
  for (const auto& [name, text] : files) write(name, text);
  return {usable_cpu(root), usable_cores(root)};
}

}  // namespace

TEST_CASE("lists of cores are read and written in the kernel's format") {
  CHECK(parse_core_list("0-3,8,10-11\n") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_core_list("").empty());
  CHECK(parse_core_list("\n").empty());
  CHECK(parse_core_list("3-1").empty());
  CHECK(parse_core_list("a").empty());
  CHECK(parse_core_list("1,").empty());
  CHECK(parse_core_list("1-2-3").empty());
  CHECK(parse_core_list("70000").empty());
  CHECK(core_list({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  CHECK(core_list({}).empty());
}

TEST_CASE("a cgroup's quota of half a core is found in both versions of cgroups, whichever ancestor sets it") {
  const std::pair half{0.5, 1U};
  CHECK(usable_with({{"proc/self/cgroup", "0::/job\n"}, {"sys/fs/cgroup/job/cpu.max", "50000 100000\n"}}) == half);
  CHECK(usable_with({{"proc/self/cgroup", "0::/job/inner\n"},
                     {"sys/fs/cgroup/job/inner/cpu.max", "max 100000\n"},
                     {"sys/fs/cgroup/job/cpu.max", "5000 10000\n"}}) == half);
  CHECK(usable_with({{"proc/self/cgroup", "4:cpu,cpuacct:/job\n"},
                     {"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n"},
                     {"sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"}}) == half);
}

TEST_CASE("a quota is rounded up to whole cores, and without one the affinity decides") {
  const auto with_quota = [](const char* quota) {
    return usable_with({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", quota}});
  };
  CHECK(with_quota("150000 100000\n") == std::pair{1.5, 2U});
  CHECK(with_quota("1600000 100000\n") == std::pair{8.0, 8U});
  CHECK(with_quota("max 100000\n") == std::pair{8.0, 8U});
  CHECK(usable_with({}) == std::pair{8.0, 8U});
}
