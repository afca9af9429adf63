// The facts that doctor gathers about a machine, a build and a job, without evaluating them. The gather_*.cpp
// files fill them, the table of checks evaluates them; tests fill them by hand.
#pragma once

#include "runtime/arena/memory_budget.hpp"
#include "runtime/base/result.hpp"
#include "tools/penstock/machine/cuda_probe.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::doctor {

using machine::child_outcome;
using machine::cuda_device_facts;
using machine::cuda_facts;
using machine::peer_facts;

/// How this program was built.
struct build_facts {
  bool cuda = false;
  int runtime_version = 0;                 ///< 13000: CUDA 13.0
  std::vector<std::string> architectures;  ///< "90-real" (machine code), "80-virtual" (PTX), "80" (both)
};

enum class gpu_demand : std::uint8_t {
  none,      ///< --cpu-only, or [gpu] device = "host"
  if_there,  ///< "auto": without a GPU, use the host device
  required,
};

/// The job's needs; without a config file, those of a job with default settings.
struct job_facts {
  bool has_config = false;
  std::string device = "auto";
  gpu_demand demand = gpu_demand::if_there;
  std::string why_no_gpu;  ///< set if demand is `none`
  std::uint32_t workers = 1;
  std::uint32_t workers_max = 1;                  ///< the most that `penstock scale` may request
  std::uint32_t threads_per_worker = 1;           ///< the largest value of the thread pools' variables
  std::string threads_from;                       ///< "OMP_NUM_THREADS=8"
  std::optional<arena::memory_need> memory_need;  ///< unknown until the dataset is described
  std::uint64_t slot_bytes = 0;                   ///< 0: unknown
  std::optional<std::uint64_t> device_need;       ///< bytes of device memory for the ring of buffers
};

struct gpu_holder {
  std::int32_t pid = 0;
  std::string name;
  std::uint64_t bytes = 0;
};

/// Facts from NVML about one GPU, even if CUDA_VISIBLE_DEVICES hides it. Empty: not reported.
struct nvml_device_facts {
  std::string name;
  std::string uuid;
  std::string pci;
  std::optional<int> major;
  std::optional<int> minor;
  std::optional<std::uint64_t> memory_total;
  std::optional<std::uint64_t> memory_free;
  std::optional<int> compute_mode;  ///< 0 default, 2 prohibited, 3 exclusive process
  std::optional<bool> mig;
  std::optional<std::uint64_t> ecc_uncorrected;  ///< errors since the driver was loaded
  std::optional<bool> remap_pending;
  std::optional<bool> remap_failed;
  std::optional<int> link_generation, link_generation_max, link_width, link_width_max;
  std::optional<int> performance_state;  ///< 0 fastest ... 15 idle
  std::vector<gpu_holder> holders;
};

/// The connection between two GPUs, given by their indices in nvml_facts::devices.
struct link_facts {
  std::size_t a = 0;
  std::size_t b = 0;
  /// Where their PCIe paths meet, in NVML's numbers: 10 one switch, 20 several switches, 30 a host bridge, 40
  /// a NUMA node, 50 the link between sockets; less than 10: on one board.
  std::optional<int> ancestor;
  int nvlinks = 0;  ///< working links, direct or through NVSwitch
};

struct nvml_facts {
  child_outcome child;
  std::string load_error;
  std::optional<int> init_code;
  std::string init_text;
  std::vector<nvml_device_facts> devices;
  std::vector<link_facts> links;  ///< all pairs
};

/// Facts from the kernel about one NVIDIA GPU on the PCI bus.
struct pci_facts {
  std::string address;
  std::optional<int> numa_node;
  std::vector<int> node_cpus;  ///< the cores of that node
  std::optional<double> link_speed, link_speed_max;
  std::optional<int> link_width, link_width_max;
};

struct xid_event {
  int code = 0;
  std::string pci;
};

struct gpu_facts {
  std::string module_version;       ///< version of the loaded kernel module; empty: not loaded
  bool module_answers = false;      ///< the module's control device could be opened
  std::vector<std::string> nodes;   ///< "nvidia0", "nvidiactl", "nvidia-uvm"
  std::vector<std::string> closed;  ///< nodes that this user cannot open
  std::vector<pci_facts> pci;
  cuda_facts cuda;
  nvml_facts nvml;
  std::string toolkit;                         ///< "13.0 in /usr/local/cuda"; empty: none
  std::optional<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES
  std::optional<std::vector<xid_event>> xids;  ///< none: the kernel's log cannot be read
  std::string kernel_log;                      ///< which log was read, or why none could be read
  decoder_rule decoder = decoder_rule::cpu;    ///< [image] decoder
  std::string nvjpeg;                          ///< "13.0.1 (/usr/local/cuda/lib64/libnvjpeg.so.13)"
  std::string nvjpeg_trouble;
};

/// The result of --deep, from a throwaway child.
struct deep_facts {
  child_outcome child;
  std::optional<failure> error;
  std::string device;
  bool equal = false;  ///< the result equals the host device's
  std::uint64_t asked_to_pin = 0;
  std::uint64_t pinned = 0;
  std::string said;  ///< the child's last output on stderr
  double seconds = 0;
};

struct limit_pair {
  std::optional<std::uint64_t> soft;  ///< none: unlimited or unknown
  std::optional<std::uint64_t> hard;
};

/// A limit on processes and threads, and what sets it.
struct pid_limit {
  std::string who;
  std::uint64_t left = 0;
};

struct leftover_process {
  std::int32_t pid = 0;
  std::string name;
};

struct machine_facts {
  std::vector<arena::memory_limit> memory;
  limit_pair open_files;
  std::vector<pid_limit> pids;
  std::uint32_t usable_cores = 1;
  std::vector<int> allowed_cpus;
  std::string pidfd;  ///< which step failed; empty: pidfds work
  std::string parent_death;
  std::string memfd_seals;
  std::vector<leftover_process> orphans;
  std::vector<std::string> dead_sockets;
  std::vector<std::string> left_folders;  ///< temporary folders of launchers that are gone
};

/// How far a worker got: hello -> described -> ready -> loaded.
struct worker_facts {
  std::string command;
  std::string program;            ///< the worker program's path; empty: not found
  std::optional<failure> broken;  ///< why the worker program could not be found or started
  bool spoke = false;
  std::string protocol_trouble;            ///< what failed before or during the worker's hello
  std::vector<std::string> cuda_traces;    ///< CUDA libraries and devices that the worker holds
  std::optional<failure> dataset_trouble;  ///< the worker's error about the dataset
  bool loaded = false;                     ///< whether the worker completed a lease
  std::uint32_t samples_tried = 0;
  std::uint32_t samples_good = 0;
  std::string first_failure;  ///< "class0/a.jpg: not a JPEG"
  std::string load_trouble;   ///< how the worker died or hung while loading
};

struct data_facts {
  std::optional<failure> trouble;  ///< why listing the dataset failed
  std::string type;
  std::uint64_t samples = 0;
  std::vector<std::string> notices;
};

/// One step of --isolate.
struct isolation_step {
  std::string name;
  bool tried = false;
  bool passed = false;
  std::string told;  ///< the step's error, or why the step was not tried
};

/// This process as a rank of a group, according to its launcher's environment and [group].
struct group_facts {
  bool there = false;                       ///< whether a launcher has made this process a rank
  std::string rank_trouble;                 ///< what is wrong with the launcher's variables
  std::string place;                        ///< "rank 1 of 8 by srun"
  std::optional<std::uint32_t> ranks_here; ///< how many of the ranks are on this host
  bool shares_gpu = false;                  ///< [gpu] share
  std::string address;                      ///< "node0:20133", "@penstock-group/..."
  std::string address_trouble;              ///< why the ranks have no address
  enum class answer : std::uint8_t { local, answers, nobody_listens, unreachable };
  answer reach = answer::local;
  std::string reach_trouble;
  bool has_secret = false;
  std::string secret_trouble;  ///< why the secret is unusable, or that it is missing between hosts
  bool wants_nccl = false;     ///< [group] communicator = "nccl"
  std::string nccl;            ///< "2.27.3 (/usr/lib/libnccl.so.2.27.3)"
  std::string nccl_trouble;
};

/// What --host found: a session where loader hosts join, or a loader host that listens.
struct hosts_facts {
  enum class peer : std::uint8_t { none, session, host };
  std::string address;  ///< as given
  std::string address_trouble;
  peer who = peer::none;
  std::string reached;  ///< "10.0.0.7:7077"
  std::string reach_trouble;
  bool encrypted = false;
  std::string secret_trouble;
  std::string name;             ///< the name of the session or of the host
  std::string version;          ///< penstock's version here
  std::string version_trouble;  ///< names both versions
  std::string measure_trouble;
  double round_trip_seconds = 0;
  double bytes_per_second = 0;  ///< from the host to the session
  double clock_ahead_seconds = 0;
  std::uint32_t workers = 0;  ///< the workers of a host that listens
  std::uint32_t cores = 0;    ///< the cores of this machine, for its workers
  std::string program;        ///< "Python": the session runs jobs or a dataset in it
  std::string own_program;    ///< the program that this machine can run
  std::string data_path;      ///< the dataset's path on this machine
  std::string data_trouble;
  std::uint64_t samples = 0;
  std::string fingerprint;
  bool compared = false;   ///< whether this machine's dataset was compared with the session's
  std::string difference;  ///< names both values; empty: the datasets are equal
};

struct facts {
  build_facts build;
  job_facts job;
  gpu_facts gpu;
  machine_facts machine;
  worker_facts worker;
  data_facts data;
  group_facts group;
  std::vector<std::string> config_warnings;
  std::optional<deep_facts> deep;
  std::optional<std::vector<isolation_step>> isolation;
  std::optional<hosts_facts> hosts;  ///< set by --host, which gathers no other facts
};

}  // namespace penstock::doctor
