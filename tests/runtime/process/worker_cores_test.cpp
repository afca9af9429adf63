#include "runtime/process/worker_cores.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace penstock;
using namespace penstock::process;

namespace {

/// The files of a machine with two memory nodes of four cores each and two GPUs, one near each node.
class machine {
 public:
  explicit machine(std::string second_model = "NVIDIA H100") {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-cores-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    write("sys/devices/system/node/online", "0-1\n");
    write("sys/devices/system/node/node0/cpulist", "0-3\n");
    write("sys/devices/system/node/node1/cpulist", "4-7\n");
    gpu("0000:17:00.0", "NVIDIA H100", "GPU-aaaa", 1);
    gpu("0000:65:00.0", second_model, "GPU-bbbb", 0);
  }

  ~machine() { std::filesystem::remove_all(root_); }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  void write(const std::string& name, const std::string& text) const {
    const auto file = root() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void gpu(const std::string& pci, const std::string& model, const std::string& uuid, int node) const {
    write("proc/driver/nvidia/gpus/" + pci + "/information",
          fmt::format("Model: \t\t {}\nIRQ:   \t\t 120\nGPU UUID: \t {}\n", model, uuid));
    write("sys/bus/pci/devices/" + pci + "/numa_node", fmt::format("{}\n", node));
  }
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] std::optional<int> node_of(const std::string& device, const char* visible = nullptr) const {
    const auto place = find_gpu_place(device, visible, root());
    return place ? std::optional(place->node) : std::nullopt;
  }

 private:
  std::filesystem::path root_;
};

const std::vector<int> eight{0, 1, 2, 3, 4, 5, 6, 7};

}  // namespace

TEST_CASE("the memory node of a GPU is found without a call into CUDA") {
  const machine here;
  CHECK(find_gpu_place("cuda:0", nullptr, here.root()) == gpu_place{1, {4, 5, 6, 7}});
  CHECK(here.node_of("cuda:1") == 0);
  CHECK(here.node_of("uuid:GPU-bbbb") == 0);
  CHECK(here.node_of("cuda:0", "1") == 0);
  CHECK(here.node_of("cuda:1", "1,0") == 1);
  CHECK(here.node_of("auto", "GPU-aaaa") == 1);
  CHECK(here.node_of("cuda", "GPU-b") == 0);
}

TEST_CASE("no memory node is reported if it is uncertain") {
  const machine here;
  CHECK_FALSE(here.node_of("auto"));  // the device may be on either node
  CHECK_FALSE(here.node_of("host"));
  CHECK_FALSE(here.node_of("cuda:2"));
  CHECK_FALSE(here.node_of("cuda:1", "1"));
  CHECK_FALSE(here.node_of("auto", ""));
  CHECK_FALSE(here.node_of("cuda:1", "-1,0"));  // -1 ends the list
  CHECK_FALSE(machine("NVIDIA L4").node_of("cuda:1"));  // CUDA numbers GPUs by speed
  CHECK(machine("NVIDIA L4").node_of("uuid:GPU-bbbb") == 0);
  here.write("sys/bus/pci/devices/0000:65:00.0/numa_node", "-1\n");
  CHECK_FALSE(here.node_of("cuda:1"));
  here.write("sys/devices/system/node/online", "0\n");
  CHECK_FALSE(here.node_of("cuda:0"));
}

TEST_CASE("workers run near the GPU until each core there has one") {
  const auto plan = plan_cores({}, eight, gpu_place{1, {4, 5, 6, 7}}).value();
  CHECK(plan.node == 1);
  CHECK(plan.of(0) == std::vector<int>{4, 5, 6, 7});
  CHECK(plan.of(3) == std::vector<int>{4, 5, 6, 7});
  CHECK(plan.of(4).empty());
  CHECK(plan.of_owner() == std::vector<int>{4, 5, 6, 7});
}

TEST_CASE("workers are restricted to cores near the GPU only if other cores are allowed too") {
  CHECK(plan_cores({}, {4, 5}, gpu_place{1, {4, 5, 6, 7}}).value().of(0).empty());
  CHECK(plan_cores({}, {3, 4, 5}, gpu_place{1, {4, 5, 6, 7}}).value().of(0) == std::vector<int>{4, 5});
  CHECK(plan_cores({}, {0, 1}, gpu_place{1, {4, 5, 6, 7}}).value().of(0).empty());
  CHECK(plan_cores({}, eight, std::nullopt).value().of(0).empty());
  const auto off = plan_cores({core_rule::anywhere, {}}, eight, gpu_place{1, {4, 5, 6, 7}}).value();
  CHECK(off.of(0).empty());
  CHECK_FALSE(off.node);
}

TEST_CASE("all workers run on the listed cores, which must be allowed") {
  const auto plan = plan_cores({core_rule::near_gpu, {5, 2}}, eight, gpu_place{1, {4, 5, 6, 7}}).value();
  CHECK(plan.of(0) == std::vector<int>{5, 2});
  CHECK(plan.of(100) == std::vector<int>{5, 2});
  CHECK(plan.of_owner().empty());
  CHECK_FALSE(plan.node);
  const auto no = plan_cores({core_rule::near_gpu, {5, 9}}, eight, std::nullopt);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::config);
  CHECK(no.error().message ==
        "'affinity' in [loader] names core 9, but this process may use only cores 0-7: name some of these, or write "
        "affinity = \"none\"");
}
