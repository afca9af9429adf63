#include "tools/penstock/doctor/checks.hpp"

#include "runtime/base/units.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

using namespace penstock;
using namespace penstock::doctor;

namespace {

/// A machine with one H200 and a job that fits: every row is ok, info or a skip.
facts healthy() {
  facts f;
  f.build = {true, 13000, {"80-real", "90-real", "80-virtual"}};
  f.job.has_config = true;
  f.job.device = "cuda";
  f.job.demand = gpu_demand::required;
  f.job.workers = 8;
  f.job.workers_max = 64;
  f.job.memory_need =
      arena::memory_need{GiB, 2 * GiB, GiB, "8 workers x 3 slots x 42 MiB", "lower [loader] workers"};
  f.job.device_need = GiB;
  f.gpu.module_version = "580.95.05";
  f.gpu.nodes = {"nvidia-uvm", "nvidia0", "nvidiactl"};
  f.gpu.pci = {{"0000:3b:00.0", 0, {0, 1, 2, 3, 4, 5, 6, 7}, 32.0, 32.0, 16, 16}};
  f.gpu.cuda.child.ending = child_outcome::how::finished;
  f.gpu.cuda.path = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05";
  f.gpu.cuda.driver_version = 13000;
  f.gpu.cuda.init_code = 0;
  f.gpu.cuda.init_name = "CUDA_SUCCESS";
  f.gpu.cuda.devices = {{0, "NVIDIA H200", "GPU-0a", "0000:3b:00.0", 9, 0}};
  nvml_device_facts d;
  d.name = "NVIDIA H200";
  d.uuid = "GPU-0a";
  d.pci = "00000000:3B:00.0";
  d.major = 9;
  d.minor = 0;
  d.memory_total = 140 * GiB;
  d.memory_free = 139 * GiB;
  d.compute_mode = 0;
  d.mig = false;
  d.ecc_uncorrected = 0;
  d.remap_pending = false;
  d.remap_failed = false;
  f.gpu.nvml.child.ending = child_outcome::how::finished;
  f.gpu.nvml.init_code = 0;
  f.gpu.nvml.devices = {d};
  f.gpu.xids.emplace();
  f.gpu.kernel_log = "/dev/kmsg";
  f.machine.memory = {{"available memory", 64 * GiB, 128 * GiB}};
  f.machine.open_files = {1024, 4096};
  f.machine.pids = {{"kernel.pid_max", 30000}};
  f.machine.usable_cores = 8;
  f.machine.allowed_cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  f.worker.program = "/usr/libexec/penstock/penstock-worker";
  f.worker.spoke = true;
  f.worker.loaded = true;
  f.worker.samples_tried = 8;
  f.worker.samples_good = 8;
  f.data.type = "image-folder";
  f.data.samples = 1000;
  f.deep.emplace();
  f.deep->child.ending = child_outcome::how::finished;
  f.deep->device = "NVIDIA H200";
  f.deep->equal = true;
  f.deep->asked_to_pin = f.deep->pinned = GiB;
  f.isolation = {{"0 workers", true, true, ""}, {"1 worker, host device", true, true, ""}};
  f.group.there = true;
  f.group.place = "rank 1 of 2 by srun";
  f.group.ranks_here = 1;
  f.group.address = "node0:20133";
  f.group.reach = group_facts::answer::answers;
  f.group.has_secret = true;
  f.group.wants_nccl = true;
  f.group.nccl = "2.27.3 (/usr/lib/libnccl.so.2)";
  f.gpu.decoder = decoder_rule::gpu;
  f.gpu.nvjpeg = "13.0.1 (/usr/local/cuda/lib64/libnvjpeg.so.13)";
  return f;
}

std::map<std::string, row> by_id(const facts& f) {
  std::map<std::string, row> rows;
  for (row& r : examine(f)) rows.emplace(r.of->id, std::move(r));
  return rows;
}

struct mutation {
  const char* id;
  status becomes;
  const char* says;  ///< text that `observed` or `remedy` must contain
  std::function<void(facts&)> happens;
};

nvml_device_facts& managed(facts& f) {
  return f.gpu.nvml.devices[0];
}

const std::vector<mutation>& mutations() {
  static const std::vector<mutation> all{
      {"gpu.build", status::fail, "without nvcc",
       [](facts& f) {
         f.build = {false, 0, {}};
       }},
      {"gpu.driver-module", status::fail, "modprobe nvidia", [](facts& f) { f.gpu.module_version.clear(); }},
      {"gpu.device-nodes", status::fail, "missing: /dev/nvidia-uvm",
       [](facts& f) {
         f.gpu.nodes = {"nvidia0", "nvidiactl"};
       }},
      {"gpu.device-nodes", status::fail, "missing: /dev/nvidia0",
       [](facts& f) {
         f.gpu.nodes = {"nvidia-uvm", "nvidiactl"};
       }},
      {"gpu.device-nodes", status::fail, "not accessible to this user: /dev/nvidia0",
       [](facts& f) { f.gpu.closed = {"nvidia0"}; }},
      {"gpu.libcuda", status::fail, "remove .../stubs from",
       [](facts& f) { f.gpu.cuda.path = "/usr/local/cuda/lib64/stubs/libcuda.so"; }},
      {"gpu.libcuda", status::fail, "version 570.1.2, the kernel module has 580.95.05",
       [](facts& f) { f.gpu.cuda.path = "/usr/lib/libcuda.so.570.1.2"; }},
      {"gpu.driver-runtime", status::fail, "supports CUDA 12.4; this program was built with CUDA 13.0",
       [](facts& f) { f.gpu.cuda.driver_version = 12040; }},
      {"gpu.driver-runtime", status::fail, "install driver 580.65.06 or newer",
       [](facts& f) { f.gpu.cuda.driver_version = 12040; }},
      {"gpu.driver-runtime", status::warn, "supports CUDA 13.0; this program was built with CUDA 13.2",
       [](facts& f) { f.build.runtime_version = 13020; }},
      {"gpu.cuinit", status::fail, "cuInit: did not return within 30 s",
       [](facts& f) {
         f.gpu.cuda.init_code.reset();
         f.gpu.cuda.devices.clear();
         f.gpu.cuda.child = {child_outcome::how::hung, "cuInit", "did not return within 30 s"};
       }},
      {"gpu.nvml", status::fail, "reboot after a driver update",
       [](facts& f) {
         f.gpu.nvml.init_code = 18;
         f.gpu.nvml.devices.clear();
       }},
      {"gpu.nvml", status::warn, "cannot open",
       [](facts& f) {
         f.gpu.nvml.init_code.reset();
         f.gpu.nvml.load_error = "libnvidia-ml.so.1: cannot open shared object file";
         f.gpu.nvml.devices.clear();
       }},
      {"gpu.nvml", status::fail, "querying the GPUs' state: was killed by SIGSEGV",
       [](facts& f) {
         f.gpu.nvml.child = {child_outcome::how::died, "querying the GPUs' state", "was killed by SIGSEGV"};
         f.gpu.nvml.devices.clear();
       }},
      {"gpu.visible-devices", status::fail, "every GPU is hidden",
       [](facts& f) { f.gpu.visible_devices = ""; }},
      {"gpu.visible-devices", status::warn,
       "\"0\": GPU 0 NVIDIA H200; \"7\": there is no such GPU (1 GPU); \"1\": ignored",
       [](facts& f) { f.gpu.visible_devices = "0,7,1"; }},
      {"gpu.visible-devices", status::fail, "written twice",
       [](facts& f) { f.gpu.visible_devices = "0,GPU-0a"; }},
      {"gpu.visible-devices", status::fail, "no GPU has this UUID",
       [](facts& f) { f.gpu.visible_devices = "GPU-ff"; }},
      {"gpu.selected", status::fail, "cuda:4 does not exist; available: cuda:0 NVIDIA H200 GPU-0a",
       [](facts& f) {
         f.job.device = "cuda:4";
         // Rows about the GPU itself are checked only if the GPU is known.
       }},
      {"gpu.architecture", status::fail,
       "compute capability 7.5; this program has code for 80-real, 90-real, 80-virtual",
       [](facts& f) {
         f.gpu.cuda.devices[0].major = 7;
         f.gpu.cuda.devices[0].minor = 5;
       }},
      {"gpu.compute-mode", status::fail, "exclusive process, held by pid 4711 python (2.00 GiB)",
       [](facts& f) {
         managed(f).compute_mode = 3;
         managed(f).holders = {{4711, "python", 2 * GiB}};
       }},
      {"gpu.compute-mode", status::fail, "prohibited", [](facts& f) { managed(f).compute_mode = 2; }},
      {"gpu.mig", status::info, "one instance", [](facts& f) { managed(f).mig = true; }},
      {"gpu.memory", status::fail, "lower [gpu] buffers", [](facts& f) { managed(f).memory_free = GiB; }},
      {"gpu.ecc", status::fail, "2 uncorrected errors", [](facts& f) { managed(f).ecc_uncorrected = 2; }},
      {"gpu.ecc", status::fail, "replace this GPU", [](facts& f) { managed(f).remap_failed = true; }},
      {"gpu.ecc", status::warn, "is waiting to be remapped",
       [](facts& f) { managed(f).remap_pending = true; }},
      {"gpu.xid", status::fail, "Xid 79 (the GPU has fallen off the bus)",
       [](facts& f) {
         f.gpu.xids = {{79, "PCI:0000:3b:00"}};
       }},
      {"gpu.xid", status::warn, "caused by a program",
       [](facts& f) {
         f.gpu.xids = {{13, "PCI:0000:3b:00"}, {13, "PCI:0000:3b:00"}};
       }},
      {"gpu.numa", status::warn, "numactl --cpunodebind=1",
       [](facts& f) {
         f.gpu.pci[0].numa_node = 1;
         f.gpu.pci[0].node_cpus = {8, 9};
       }},
      {"gpu.pcie", status::warn, "x8 of x16", [](facts& f) { f.gpu.pci[0].link_width = 8; }},
      {"gpu.pcie", status::warn, "16 of 32 GT/s", [](facts& f) { f.gpu.pci[0].link_speed = 16; }},
      {"gpu.links", status::warn, "no peer access: all",
       [](facts& f) {
         f.gpu.cuda.devices.push_back({1, "NVIDIA H200", "GPU-0b", "0000:5e:00.0", 9, 0});
         f.gpu.cuda.peers = {{0, 1, false}};
       }},
      {"gpu.pcie", status::info, "idle",
       [](facts& f) {
         f.gpu.pci[0].link_speed = 2.5;
         managed(f).performance_state = 8;
       }},
      {"gpu.deep", status::fail, "different values", [](facts& f) { f.deep->equal = false; }},
      {"gpu.deep", status::fail, "an illegal memory access",
       [](facts& f) {
         f.deep->error = failure{errc::device_poisoned, "an illegal memory access (CUDA error 700)", 700};
       }},
      {"gpu.pinning", status::warn, "512 MiB of 1.00 GiB", [](facts& f) { f.deep->pinned = GiB / 2; }},
      {"memory.arena", status::fail, "memory cgroup /job leaves 512 MiB",
       [](facts& f) {
         f.machine.memory.push_back({"memory cgroup /job", GiB / 2, GiB});
       }},
      {"limits.open-files", status::fail, "128 (ulimit -n)",
       [](facts& f) { f.machine.open_files.soft = 128; }},
      {"limits.open-files", status::warn, "256 (ulimit -n)",
       [](facts& f) { f.machine.open_files.soft = 256; }},
      {"limits.processes", status::fail, "pids cgroup /x leaves 20",
       [](facts& f) {
         f.machine.pids.push_back({"pids cgroup /x", 20});
       }},
      {"cpu.workers", status::warn, "4 cores for 8 workers", [](facts& f) { f.machine.usable_cores = 4; }},
      {"cpu.workers", status::warn, "OMP_NUM_THREADS = \"1\"",
       [](facts& f) {
         f.job.threads_per_worker = 8;
         f.job.threads_from = "OMP_NUM_THREADS=8";
       }},
      {"system.pidfd", status::fail, "Function not implemented",
       [](facts& f) { f.machine.pidfd = "pidfd_open: Function not implemented"; }},
      {"system.parent-death", status::fail, "survived",
       [](facts& f) { f.machine.parent_death = "a child survived"; }},
      {"system.memfd-seals", status::fail, "not permitted",
       [](facts& f) { f.machine.memfd_seals = "F_ADD_SEALS: Operation not permitted"; }},
      {"leftovers.processes", status::warn, "kill -9 77",
       [](facts& f) {
         f.machine.orphans = {{77, "penstock-worker"}};
       }},
      {"leftovers.sockets", status::warn, "penstock sessions",
       [](facts& f) { f.machine.dead_sockets = {"/tmp/penstock-0/a.sock"}; }},
      {"leftovers.folders", status::warn, "/tmp/penstock-launch-aBcDeF",
       [](facts& f) { f.machine.left_folders = {"/tmp/penstock-launch-aBcDeF"}; }},
      {"config.file", status::warn, "has no effect",
       [](facts& f) { f.config_warnings = {"'flip' has no effect"}; }},
      {"worker.program", status::fail, "was not found",
       [](facts& f) {
         f.worker = {};
         f.worker.broken = failure{errc::worker_program, "program 'x' was not found", 0};
       }},
      {"worker.protocol", status::fail, "speaks protocol 7",
       [](facts& f) {
         f.worker = {};
         f.worker.protocol_trouble = "it speaks protocol 7, but this session speaks 1";
       }},
      {"worker.cuda-free", status::fail, "the worker uses /usr/lib/libcuda.so.1",
       [](facts& f) { f.worker.cuda_traces = {"/usr/lib/libcuda.so.1"}; }},
      {"data.dataset", status::fail, "does not exist",
       [](facts& f) {
         f.data = {};
         f.data.trouble = failure{errc::dataset, "'/data' does not exist", 0};
         f.worker.loaded = false;
       }},
      {"data.sample", status::warn, "7 of 8 samples loaded; a.jpg: not a JPEG",
       [](facts& f) {
         f.worker.samples_good = 7;
         f.worker.first_failure = "a.jpg: not a JPEG";
       }},
      {"data.sample", status::fail, "was killed by SIGSEGV",
       [](facts& f) { f.worker.load_trouble = "was killed by SIGSEGV while loading"; }},
      {"group.rank", status::fail, "WORLD_SIZE is not",
       [](facts& f) {
         f.group = {};
         f.group.rank_trouble = "RANK is set, but WORLD_SIZE is not";
       }},
      {"group.gpus", status::warn, "4 ranks on this host, 1 GPU", [](facts& f) { f.group.ranks_here = 4; }},
      {"group.address", status::fail, "node0:20133: No route to host",
       [](facts& f) {
         f.group.reach = group_facts::answer::unreachable;
         f.group.reach_trouble = "No route to host";
       }},
      {"group.address", status::fail, "the address of",
       [](facts& f) { f.group.address_trouble = "the address of rank 0 is unknown"; }},
      {"group.secret", status::fail, "mode 0644",
       [](facts& f) { f.group.secret_trouble = "the secret file has mode 0644"; }},
      {"group.nccl", status::fail, "cannot open", [](facts& f) { f.group.nccl_trouble = "cannot open it"; }},
      {"gpu.jpeg", status::fail, "cannot open", [](facts& f) { f.gpu.nvjpeg_trouble = "cannot open it"; }},
      {"gpu.jpeg", status::warn, "cannot open",
       [](facts& f) {
         f.gpu.decoder = decoder_rule::hybrid;
         f.gpu.nvjpeg_trouble = "cannot open it";
       }},
      {"isolate", status::fail, "the first step to fail: 8 workers: no; passed: 0 workers, 1 worker",
       [](facts& f) {
         f.isolation = {{"0 workers", true, true, ""},
                        {"1 worker", true, true, ""},
                        {"8 workers", true, false, "no"},
                        {"GPU", false, false, "not tried"}};
       }},
  };
  return all;
}

std::string read_text(const char* file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a healthy machine with a job that fits passes every row") {
  for (const auto& [id, r] : by_id(healthy())) {
    INFO(id << ": " << r.observed << r.why);
    CHECK(r.is == (id == "gpu.toolkit" ? status::info : status::ok));
    CHECK_FALSE(r.expected.empty());
  }
}

TEST_CASE("each fault changes its own row, and rows that cannot be checked without it are skipped") {
  const auto before = by_id(healthy());
  for (const mutation& m : mutations()) {
    INFO(m.id << ": " << m.says);
    facts f = healthy();
    m.happens(f);
    const auto after = by_id(f);
    const row& r = after.at(m.id);
    INFO("observed: " << r.observed << "; remedy: " << r.remedy);
    CHECK(r.is == m.becomes);
    CHECK((r.observed + "\n" + r.remedy).find(m.says) != std::string::npos);
    if (m.becomes != status::info) CHECK_FALSE(r.remedy.empty());
    for (const auto& [id, other] : after) {
      if (id == m.id) continue;
      INFO(id << ": " << other.observed << other.why);
      CHECK((other.is == before.at(id).is || other.is == status::skip));
    }
  }
}

TEST_CASE("every row that can fail fails with one of these faults") {
  std::set<std::string_view> broken;
  for (const mutation& m : mutations()) broken.insert(m.id);
  for (const check& c : checks()) {
    INFO(c.id);
    CHECK((broken.contains(c.id) || c.id == "gpu.toolkit" || c.id == "gpu.cuinit"));
  }
}

TEST_CASE("every documented code of cuInit fails only its row, with its own remedy") {
  std::set<std::string> remedies;
  for (const int code : {3, 34, 35, 46, 100, 209, 222, 802, 803, 804, 805, 999}) {
    INFO(code);
    facts f = healthy();
    f.gpu.cuda.init_code = code;
    f.gpu.cuda.init_name = "CUDA_ERROR_X";
    f.gpu.cuda.devices.clear();
    const auto rows = by_id(f);
    CHECK(rows.at("gpu.cuinit").is == status::fail);
    CHECK(rows.at("gpu.cuinit").observed == fmt::format("error {} (CUDA_ERROR_X)", code));
    CHECK(remedies.insert(rows.at("gpu.cuinit").remedy).second);
    for (const auto& [id, r] : rows) {
      INFO(id << ": " << r.observed);
      const bool names_it = r.is == status::skip && r.why.find("gpu.cuinit") != std::string::npos;
      if (id != "gpu.cuinit") CHECK((r.is == status::ok || r.is == status::info || names_it));
    }
  }
}

TEST_CASE("a broken GPU with a working loader is reported as such") {
  facts f = healthy();
  f.gpu.cuda.init_code = 999;
  f.gpu.cuda.devices.clear();
  const auto rows = examine(f);
  CHECK(worst_of(rows, layer::gpu) == status::fail);
  CHECK(worst_of(rows, layer::loader) == status::ok);
  CHECK(worst_of(rows, layer::data) == status::ok);
  CHECK(summary(rows) == "the GPU layer is broken but the loader works: --device host runs without the GPU");

  facts g = healthy();
  g.worker.load_trouble = "died";
  CHECK(summary(examine(g)) == "broken: data; the GPU layer is not");
  CHECK(summary(examine(healthy())) == "nothing is broken");
}

TEST_CASE("without any trace of a GPU, auto skips the GPU rows and cuda fails them, each with a remedy") {
  facts f = healthy();
  f.gpu = {};
  f.gpu.cuda.child.ending = f.gpu.nvml.child.ending = child_outcome::how::finished;
  f.gpu.cuda.load_error = f.gpu.nvml.load_error = "cannot open shared object file";
  f.deep.reset();
  f.job.device = "auto";
  f.job.demand = gpu_demand::if_there;
  for (const row& r : examine(f)) {
    if (r.of->belongs_to != layer::gpu || r.of->id == "gpu.build" || r.of->id == "gpu.toolkit") continue;
    INFO(r.of->id);
    CHECK(r.is == status::skip);
    CHECK(r.why.find("device = \"auto\" uses the host device") != std::string::npos);
    CHECK_FALSE(r.remedy.empty());
  }
  f.job.device = "cuda";
  f.job.demand = gpu_demand::required;
  const auto rows = by_id(f);
  for (const char* id : {"gpu.driver-module", "gpu.device-nodes", "gpu.libcuda"})
    CHECK(rows.at(id).is == status::fail);
  CHECK(rows.at("gpu.cuinit").is == status::skip);
  CHECK(rows.at("gpu.cuinit").why == "libcuda could not be loaded (see gpu.libcuda)");
}

TEST_CASE("a module that answers counts as loaded even if the kernel does not show it") {
  facts f = healthy();
  f.gpu.module_version.clear();
  f.gpu.module_answers = true;
  CHECK(by_id(f).at("gpu.driver-module").is == status::ok);
}

TEST_CASE("GPUs that are hidden on purpose are one warning with auto and one failure with cuda") {
  facts f = healthy();
  f.gpu.cuda.init_code = 100;
  f.gpu.cuda.devices.clear();
  for (const char* hides : {"", "-1", "7", "0,0"}) {
    INFO(hides);
    f.gpu.visible_devices = hides;
    f.job.demand = gpu_demand::required;
    CHECK(by_id(f).at("gpu.visible-devices").is == status::fail);
    CHECK(by_id(f).at("gpu.cuinit").is == status::skip);
    f.job.demand = gpu_demand::if_there;
    CHECK(by_id(f).at("gpu.visible-devices").is == status::warn);
    CHECK(summary(examine(f)) == "nothing is broken");
  }
  f.gpu.visible_devices = "0";
  CHECK(by_id(f).at("gpu.cuinit").is == status::fail);
}

TEST_CASE("the driver's report on the link takes precedence over the bus's") {
  facts f = healthy();
  f.gpu.pci[0].link_width = 1;
  nvml_device_facts& d = managed(f);
  d.link_width = d.link_width_max = 16;
  d.link_generation = d.link_generation_max = 5;
  CHECK(by_id(f).at("gpu.pcie").is == status::ok);
  d.link_generation = 3;
  CHECK(by_id(f).at("gpu.pcie").is == status::warn);
}

namespace {

/// The answers of a machine with these GPUs: a row for each, as `nvidia-smi topo -m` prints it, and pairs without peer access.
facts machine_with(const std::vector<std::vector<std::string>>& topology,
                   const std::set<std::pair<int, int>>& apart = {}) {
  static const std::map<std::string, int> ancestors{
      {"PIX", 10}, {"PXB", 20}, {"PHB", 30}, {"NODE", 40}, {"SYS", 50}};
  facts f = healthy();
  f.gpu.cuda.devices.clear();
  f.gpu.nvml.devices.clear();
  for (int i = 0; i < static_cast<int>(topology.size()); ++i) {
    const std::string uuid = "GPU-" + std::to_string(i);
    f.gpu.cuda.devices.push_back({i, "NVIDIA H200", uuid, "0000:3b:00.0", 9, 0});
    nvml_device_facts d;
    d.uuid = uuid;
    f.gpu.nvml.devices.push_back(d);
    for (int other = i + 1; other < static_cast<int>(topology.size()); ++other) {
      const std::string& way = topology[static_cast<std::size_t>(i)][static_cast<std::size_t>(other)];
      link_facts link{static_cast<std::size_t>(i), static_cast<std::size_t>(other), 50, 0};
      if (way.starts_with("NV")) link.nvlinks = std::stoi(way.substr(2));
      if (const auto known = ancestors.find(way); known != ancestors.end()) link.ancestor = known->second;
      f.gpu.nvml.links.push_back(link);
      f.gpu.cuda.peers.push_back({i, other, !apart.contains({i, other})});
    }
  }
  return f;
}

}  // namespace

TEST_CASE("the connections between GPUs are listed, including whether GPUs reach each other's memory") {
  SECTION("one GPU has no other to reach") {
    const row links = by_id(machine_with({{"X"}})).at("gpu.links");
    CHECK(links.is == status::ok);
    CHECK(links.observed == "this process sees one GPU");
  }
  SECTION("two GPUs behind NVSwitch") {
    const row links = by_id(machine_with({{"X", "NV18"}, {"NV18", "X"}})).at("gpu.links");
    CHECK(links.is == status::ok);
    CHECK(links.observed == "2 GPUs; NV18 (NVLink): all; peer access: all");
  }
  const std::vector<std::vector<std::string>> two_sockets{{"X", "PIX", "SYS", "SYS"},
                                                          {"PIX", "X", "SYS", "SYS"},
                                                          {"SYS", "SYS", "X", "PIX"},
                                                          {"SYS", "SYS", "PIX", "X"}};
  SECTION("four GPUs on two sockets, all reach each other") {
    const row links = by_id(machine_with(two_sockets)).at("gpu.links");
    CHECK(links.is == status::info);
    CHECK(links.observed ==
          "4 GPUs; PIX (one PCIe switch): 0-1, 2-3; SYS (the link between NUMA nodes): 0-2, 0-3, 1-2, 1-3; "
          "peer access: all");
  }
  SECTION("four GPUs on two sockets that do not reach each other across") {
    facts f = machine_with(two_sockets, {{0, 2}, {0, 3}, {1, 2}, {1, 3}});
    const row links = by_id(f).at("gpu.links");
    CHECK(links.is == status::warn);
    CHECK(links.observed.ends_with("; no peer access: 0-2, 0-3, 1-2, 1-3"));
    CHECK(links.remedy.find("NCCL copies through host memory") != std::string::npos);
    f.group.wants_nccl = false;  // our programs do not need it then
    CHECK(by_id(f).at("gpu.links").is == status::info);
  }
  SECTION("CUDA_VISIBLE_DEVICES numbers them differently from NVML") {
    facts f = machine_with({{"X", "NV4", "SYS"}, {"NV4", "X", "SYS"}, {"SYS", "SYS", "X"}});
    f.gpu.cuda.devices = {{0, "NVIDIA H200", "GPU-2", "", 9, 0}, {1, "NVIDIA H200", "GPU-1", "", 9, 0}};
    f.gpu.cuda.peers = {{0, 1, true}};
    CHECK(by_id(f).at("gpu.links").observed ==
          "2 GPUs; SYS (the link between NUMA nodes): all; peer access: all");
    f.gpu.nvml = {};  // without NVML, only what CUDA reports is known
    CHECK(by_id(f).at("gpu.links").observed == "2 GPUs; unknown: all; peer access: all");
  }
}

TEST_CASE("each rank needs its own GPU, unless ranks may share one") {
  facts f = healthy();
  f.gpu.cuda.devices.push_back(f.gpu.cuda.devices.front());
  f.group.ranks_here = 2;
  CHECK(by_id(f).at("group.gpus").is == status::ok);
  f.group.ranks_here = 3;
  CHECK(by_id(f).at("group.gpus").is == status::fail);
  f.group.shares_gpu = true;
  CHECK(by_id(f).at("group.gpus").is == status::ok);
  f.group = {};
  for (const char* id : {"group.rank", "group.gpus", "group.address", "group.secret", "group.nccl"})
    CHECK(by_id(f).at(id).is == status::skip);
}

TEST_CASE("with --cpu-only no GPU row is checked") {
  facts f = healthy();
  f.job.demand = gpu_demand::none;
  f.job.why_no_gpu = "--cpu-only";
  for (const row& r : examine(f)) {
    if (r.of->belongs_to == layer::gpu) CHECK(r.is == status::skip);
  }
}

TEST_CASE("machine code runs on the same major version, and PTX on all newer ones") {
  const std::vector<std::string> built{"80-real", "86-real", "90-virtual"};
  CHECK_FALSE(has_code_for(built, 7, 5));
  CHECK(has_code_for(built, 8, 0));
  CHECK(has_code_for(built, 8, 9));
  CHECK(has_code_for(built, 9, 0));
  CHECK(has_code_for(built, 12, 0));
  CHECK_FALSE(has_code_for({"90-real"}, 10, 0));
  CHECK(has_code_for({"90"}, 10, 0));
  CHECK_FALSE(has_code_for({"90a"}, 10, 0));
  CHECK(has_code_for({"90a"}, 9, 0));
  CHECK(has_code_for({"80-virtual"}, 8, 6));
  CHECK_FALSE(has_code_for({}, 9, 0));
}

TEST_CASE("ids are unique and docs/doctor.md is what the table of checks says") {
  std::set<std::string_view> ids;
  for (const check& c : checks()) CHECK(ids.insert(c.id).second);
  for (const check& c : host_checks()) CHECK(ids.insert(c.id).second);
  // To regenerate it: PENSTOCK_WRITE_DOCS=1 bin/test_doctor "ids are unique and docs/doctor.md*"
  if (std::getenv("PENSTOCK_WRITE_DOCS") != nullptr)
    std::ofstream(PENSTOCK_DOCTOR_DOCS, std::ios::binary) << reference_markdown();
  CHECK(read_text(PENSTOCK_DOCTOR_DOCS) == reference_markdown());
}
