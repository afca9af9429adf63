#include "tools/penstock/doctor/checks.hpp"

#include "tools/penstock/doctor/row_checks.hpp"

#include <algorithm>

namespace penstock::doctor {
namespace {

constexpr std::string_view layer_names[] = {"gpu", "machine", "loader", "data"};
constexpr std::string_view status_names[] = {"ok", "info", "skip", "warn", "fail"};

/// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? std::string("\\|") : std::string(1, c);
  return safe;
}

using enum layer;

constexpr check gpu_checks[] = {
    {"gpu.build", gpu, "whether this build contains the CUDA device", "built with nvcc",
     "build again on a machine with nvcc, or use --device host", check_build},
    {"gpu.driver-module", gpu, "the NVIDIA kernel module", "loaded",
     "install the NVIDIA driver, or load it with `modprobe nvidia`; a container uses the host's",
     check_driver_module},
    {"gpu.device-nodes", gpu, "the driver's device files in /dev",
     "nvidiactl, nvidia-uvm and one for each GPU, accessible",
     "in a container: start it with --gpus all; else `nvidia-modprobe -u -c 0`", check_device_nodes},
    {"gpu.libcuda", gpu, "which libcuda is loaded: not a stub, and of the kernel module's version",
     "the driver's own libcuda.so.1",
     "install the driver's libraries; in a container start it with --gpus all and the capability compute",
     check_libcuda},
    {"gpu.driver-runtime", gpu, "the driver compared with the CUDA runtime in this program (not the toolkit)",
     "a driver that is new enough",
     "update the driver when convenient: kernels that need a newer one would not load", check_driver_runtime},
    {"gpu.toolkit", gpu, "the CUDA toolkit on this machine", "none is needed to run, only to build", "",
     check_toolkit},
    {"gpu.cuinit", gpu, "whether CUDA initialises, in a separate process", "cuInit returns 0",
     "read `dmesg | grep NVRM`", check_init},
    {"gpu.nvml", gpu, "whether the management library answers, in a separate process",
     "libnvidia-ml.so.1 of the driver's version",
     "install the driver's libraries; in a container give it the capability utility", check_nvml},
    {"gpu.visible-devices", gpu, "CUDA_VISIBLE_DEVICES, entry by entry", "GPUs that exist, each once",
     "correct or unset CUDA_VISIBLE_DEVICES", check_visible_devices},
    {"gpu.selected", gpu, "the GPU that [gpu] device names", "it exists",
     "choose an existing one with [gpu] device or --device", check_selected},
    {"gpu.architecture", gpu, "the GPU's compute capability compared with the code in this program",
     "machine code of the same major version, or older PTX", "build for this GPU", check_architecture},
    {"gpu.mig", gpu, "multi-instance mode", "off, or an instance is visible",
     "create an instance (`nvidia-smi mig -cgi ... -C`) and name it in CUDA_VISIBLE_DEVICES", check_mig},
    {"gpu.compute-mode", gpu, "whether another process has exclusive use", "default, or not in use",
     "`nvidia-smi -c DEFAULT`", check_compute_mode},
    {"gpu.memory", gpu, "free device memory compared with what the job needs", "room for a context",
     "end the processes that hold it, or lower [gpu] buffers or [sampler] batch_size", check_device_memory},
    {"gpu.ecc", gpu, "memory errors and remapped rows", "no uncorrected error",
     "reset the GPU or reboot; if the errors come back, replace the GPU", check_ecc},
    {"gpu.xid", gpu, "the driver's error messages (Xid) in the kernel's log", "none",
     "reboot; if they come back, have the GPU checked", check_xid},
    {"gpu.numa", gpu, "the GPU's NUMA node compared with the cores that this job may use",
     "at least one allowed core on the GPU's node", "run on the GPU's node", check_numa},
    {"gpu.pcie", gpu, "the PCIe link compared with its maximum", "full width and speed",
     "check for a narrow slot, a riser, or errors in `dmesg | grep -i pcie`", check_pcie},
    {"gpu.links", gpu, "the links between the GPUs that this process sees: NVLink, PCIe, peer access",
     "peer access between all of them, and the same kind of link",
     "see `nvidia-smi topo -m` and `nvidia-smi topo -p2p r`; without peer access NCCL copies through host "
     "memory: look "
     "for ACS or an IOMMU between them, a virtual machine, or MIG",
     check_links},
    {"gpu.jpeg", gpu, "nvJPEG, if [image] decoder asks for it",
     "libnvjpeg.so, or what PENSTOCK_NVJPEG names, can be opened and is 12 or later",
     "install nvJPEG (libnvjpeg of CUDA's packages, or nvidia-nvjpeg of pip) and name its file in "
     "PENSTOCK_NVJPEG, "
     "or set [image] decoder = \"cpu\"",
     check_nvjpeg},
    {"gpu.deep", gpu, "context, allocation, copy, kernel, copy back, compare (--deep)",
     "the same bits as the host device's", "see the message; try `penstock doctor --isolate FILE`",
     check_deep},
    {"gpu.pinning", gpu, "page-locking as much memory as the job's arena (--deep)", "all of it",
     "raise ulimit -l, or lower [loader] workers or slots_per_worker; without it copies are slower",
     check_pinning},
};

constexpr check machine_checks[] = {
    {"memory.arena", machine, "the arena's size compared with free memory, cgroups and limits",
     "room for all of it", "lower [loader] workers, slots_per_worker or [sampler] batch_size",
     check_arena_memory},
    {"limits.open-files", machine, "descriptors for the workers", "",
     "raise ulimit -n, or lower [loader.limits] max", check_open_files},
    {"limits.processes", machine, "processes and threads: ulimit -u, pid_max and the pids cgroups", "",
     "raise ulimit -u or pids.max (docker: --pids-limit), or lower [loader] workers", check_pids},
    {"cpu.workers", machine, "cores that this job may use compared with workers and their thread pools",
     "no more busy threads than cores", "lower [loader] workers, or allow more cores", check_cpus},
    {"system.pidfd", machine, "pidfds, which report deaths", "works",
     "use kernel 5.4 or newer and a seccomp profile that allows pidfd_open", check_pidfd},
    {"system.parent-death", machine, "PR_SET_PDEATHSIG, which ends workers with their session", "works",
     "allow prctl(PR_SET_PDEATHSIG) in the seccomp profile", check_parent_death},
    {"system.memfd-seals", machine, "sealed memfds, which hold the arena", "works",
     "allow memfd_create and F_ADD_SEALS in the seccomp profile", check_memfd_seals},
    {"leftovers.processes", machine, "penstock programs whose session is gone", "none", "kill them",
     check_orphans},
    {"leftovers.sockets", machine, "control sockets whose session is gone", "none",
     "`penstock sessions --prune` removes them", check_dead_sockets},
    {"leftovers.folders", machine, "temporary folders of `penstock launch` whose launcher is gone", "none",
     "`penstock sessions --prune` removes them", check_left_folders},
    {"group.rank", machine, "the launcher's variables: rank, world size, local rank",
     "all variables of one launcher are set and in range",
     "start the ranks with one launcher, and unset variables that another launcher left", check_rank},
    {"group.gpus", machine, "ranks on this host compared with the GPUs that this process sees",
     "a GPU for each rank", "start fewer ranks on this host, or set [gpu] share = true", check_rank_gpus},
    {"group.address", machine, "where the ranks meet: MASTER_ADDR, Slurm's first node or PENSTOCK_GROUP_ADDR",
     "a host that can be reached", "correct the address, or open its port in the firewall",
     check_meeting_place},
    {"group.secret", machine, "the group's secret: [group] secret_file or PENSTOCK_GROUP_SECRET",
     "accessible only to its owner; needed between hosts", "chmod 600, and the same secret for all ranks",
     check_secret},
    {"group.nccl", machine, "NCCL, if [group] communicator asks for it",
     "libnccl.so.2, or what PENSTOCK_NCCL names, can be opened and is 2.18 or later",
     "install NCCL (libnccl2, or nvidia-nccl-cu13 of pip) and name its library in PENSTOCK_NCCL", check_nccl},
};

constexpr check job_checks[] = {
    {"config.file", loader, "the config file", "no mistakes and no warnings",
     "see `penstock check-config FILE`", check_config},
    {"worker.program", loader, "the program of [loader] command", "found and starts",
     "check [loader] command, PENSTOCK_LIBEXEC and the file's mode", check_worker_program},
    {"worker.protocol", loader, "the worker program's first message",
     "hello with the session's version of the protocol",
     "build the worker program against this version of penstock and call worker_main in it",
     check_worker_protocol},
    {"worker.cuda-free", loader, "CUDA libraries and devices in a worker",
     "none: only the GPU owner uses the GPU",
     "do not link CUDA into the worker program; check whether a dataset or decoder loads it",
     check_worker_cuda_free},
    {"data.dataset", data, "the dataset as a whole", "can be listed and described",
     "see the message; `penstock inspect FILE` checks every file", check_dataset},
    {"data.sample", data, "a worker loads the first samples", "all of them load",
     "repair or remove the files that fail", check_sample},
    {"isolate", loader, "workers 0, 1, N; then the GPU without and with pinning; then all (--isolate)",
     "every step passes", "fix what the first failing step reports; later steps depend on it",
     check_isolation},
};

constexpr check loader_host_checks[] = {
    {"host.reach", machine, "whether the address can be reached, within 5 s", "a session or a loader host listens there",
     "start it first; else correct the address, or open the port in the firewall", check_reach},
    {"host.secret", machine, "whether both sides have the same secret, or none", "they prove it to each other",
     "give --secret-file a copy of the session's [loader.hosts] secret_file; or --insecure, if the session uses that",
     check_hosts_secret},
    {"host.version", machine, "the versions of penstock and of the protocol", "the same on both sides",
     "install the same version of penstock on both machines", check_versions},
    {"host.round-trip", machine, "the time from a request to its answer", "less than 20 ms",
     "raise [loader] slots_per_worker and [loader.hosts] landing_slots, so that workers need not wait for leases", check_round_trip},
    {"host.bandwidth", machine, "throughput from the loader host to the session, sent like batches", "100 MB/s or more",
     "see `When it pays` in docs/hosts.md; [loader.hosts] compress sends fewer bytes", check_bandwidth},
    {"host.clock", machine, "the difference between the clocks", "less than a minute",
     "set the clocks (NTP): no batch depends on them, but times in logs and events do not match", check_clocks},
    {"host.data", data, "whether the session's dataset exists on this machine", "it can be listed",
     "mount or copy the data; give its folder with --data FROM=TO or [loader.hosts] path_map", check_data_here},
    {"host.fingerprint", data, "whether it is the same dataset as the session's", "the same type, samples, tensors and fingerprint; for Python the same versions, for a custom dataset the same program",
     "make the data the same on both machines: copy it again, or correct --data", check_same_data},
    {"host.cores", loader, "cores for workers", "", "", check_cores},
};

}  // namespace

const std::vector<check>& host_checks() {
  static const std::vector<check> all(std::begin(loader_host_checks), std::end(loader_host_checks));
  return all;
}

const std::vector<check>& checks() {
  static const std::vector<check> all = [] {
    std::vector<check> tables(std::begin(gpu_checks), std::end(gpu_checks));
    tables.insert(tables.end(), std::begin(machine_checks), std::end(machine_checks));
    tables.insert(tables.end(), std::begin(job_checks), std::end(job_checks));
    return tables;
  }();
  return all;
}

std::vector<row> examine(const facts& found) {
  std::vector<row> rows;
  const std::vector<check>& asked = found.hosts ? host_checks() : checks();
  rows.reserve(asked.size());
  for (const check& c : asked) {
    finding f = c.check(found);
    row r{&c, f.is, std::move(f.observed), std::move(f.expected), std::move(f.remedy), std::move(f.why)};
    if (r.expected.empty()) r.expected = c.expected;
    const bool something_to_do = r.is != status::ok && r.is != status::info;
    if (r.remedy.empty() && something_to_do) r.remedy = c.remedy;
    rows.push_back(std::move(r));
  }
  return rows;
}

std::string_view name_of(status s) noexcept {
  return status_names[static_cast<std::size_t>(s)];
}
std::string_view name_of(layer l) noexcept {
  return layer_names[static_cast<std::size_t>(l)];
}

status worst_of(const std::vector<row>& rows, layer of) noexcept {
  std::optional<status> worst;
  for (const row& r : rows) {
    // A skipped row does not affect its layer if other rows were checked.
    if (r.of->belongs_to != of || r.is == status::skip || r.is == status::info) continue;
    worst = std::max(worst.value_or(status::ok), r.is);
  }
  return worst.value_or(status::skip);
}

std::string summary(const std::vector<row>& rows) {
  const auto broken = [&](layer l) { return worst_of(rows, l) == status::fail; };
  const bool rest_broken = broken(layer::machine) || broken(layer::loader) || broken(layer::data);
  if (!broken(layer::gpu) && !rest_broken) return "nothing is broken";
  if (!rest_broken) return "the GPU layer is broken but the loader works: --device host runs without the GPU";
  std::string list;
  for (const layer l : {layer::gpu, layer::machine, layer::loader, layer::data})
    if (broken(l)) list += (list.empty() ? "" : " and ") + std::string(name_of(l));
  return "broken: " + list + (broken(layer::gpu) ? "" : "; the GPU layer is not");
}

std::string reference_markdown() {
  std::string text =
      "<!-- Made from tools/penstock/doctor/checks.cpp by reference_markdown(); edit that, not this. -->\n"
      "# penstock doctor\n\n"
      "Every check of `penstock doctor`: what it looks at, and what to do if it fails.\n\n"
      "`penstock doctor [FILE]` checks the machine, the GPU and, with FILE, the job. Exit code 0, or 3 if a row\n"
      "fails; 78 if the config file is wrong. CUDA and NVML are queried in separate processes with a deadline, so a\n"
      "driver that hangs or crashes is just another result.\n\n"
      "- `--cpu-only`: skips the GPU's rows.\n"
      "- `--deep`: uses the GPU as a run does and compares the bits; page-locks as much memory as the job's arena.\n"
      "- `--isolate`: runs the job step by step and names the first step that fails.\n"
      "- `--root DIR`: reads /proc, /sys, /dev and libraries below DIR, to check the files of another machine.\n"
      "- `--json`: schema `penstock.doctor/1`: `results` is a list of `id`, `layer`, `status`, `observed`,\n"
      "  `expected`, `remedy` and, for a skipped row, `why`; `layers` has the worst status of each layer.\n\n"
      "Status: `ok`; `info`: nothing to check; `warn`: runs, but slower or at risk; `fail`; `skip`: not checked, with\n"
      "the reason. One cause fails one row: rows that cannot be checked because of it are skipped and name it. Without\n"
      "a GPU, `device = \"auto\"` uses the host device, so the GPU's rows are skipped; with `device = \"cuda\"` they fail.\n\n"
      "| id | what it checks | what it expects | remedy |\n"
      "| --- | --- | --- | --- |\n";
  for (const check& c : checks()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", c.id, c.meaning,
                        c.expected.empty() ? "enough for the job" : c.expected,
                        c.remedy.empty() ? "-" : cell(c.remedy));
  }
  text +=
      "\n"
      "## Loader hosts\n\n"
      "`penstock doctor --host ADDRESS:PORT [--secret-file FILE|--insecure] [--data FROM=TO ...] [--program FILE]` checks whether this\n"
      "machine can be a loader host of the session at that address, or whether a session here could use the loader host at that\n"
      "address. It checks only these rows, and does not disturb a run: it takes no place and no worker, has its own connection and\n"
      "thread there, and transfers at most 64 MiB in about a second. The dataset is listed on this machine, within `--probe-timeout`;\n"
      "a listening loader host is not asked to list any.\n\n"
      "| id | what it checks | what it expects | remedy |\n"
      "| --- | --- | --- | --- |\n";
  for (const check& c : host_checks())
    text += fmt::format("| `{}` | {} | {} | {} |\n", c.id, c.meaning, c.expected.empty() ? "-" : c.expected,
                        c.remedy.empty() ? "-" : cell(c.remedy));
  text += "\n## Codes of cuInit\n\n| code | remedy |\n| --- | --- |\n";
  for (const int code : {3, 34, 35, 46, 100, 209, 222, 802, 803, 804, 805, 999})
    text += fmt::format("| {} | {} |\n", code, cell(remedy_of_init(code)));
  text += "\n## Oldest driver for each CUDA version\n\n| built with CUDA | driver |\n| --- | --- |\n";
  for (const int runtime : {11000, 12000, 13000})
    text += fmt::format("| {}.x | {} |\n", runtime / 1000, minimum_driver(runtime));
  return text;
}

}  // namespace penstock::doctor
