#include "runtime/base/units.hpp"
#include "tools/penstock/doctor/row_checks.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <sstream>

namespace penstock::doctor {
namespace {

// A context costs 300 to 500 MiB of device memory before the first byte of ours.
constexpr std::uint64_t context_bytes = 512 * MiB;
constexpr int no_device = 100;       // from cuInit
constexpr int first_idle_state = 5;  // performance states from here on mean idle

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool any_trace(const gpu_facts& g) {
  return !g.module_version.empty() || !g.nodes.empty() || !g.pci.empty() || !g.cuda.devices.empty() ||
         !g.nvml.devices.empty();
}

/// "0000:3b:00.0" of "00000000:3B:00.0".
std::string plain_address(std::string_view pci) {
  std::string text(pci);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (const auto colon = text.find(':'); colon != std::string::npos && colon > 4) text.erase(0, colon - 4);
  return text;
}

/// The GPU that the job would use, as each source reports it. CUDA decides; without CUDA, use NVML's first
/// GPU, so that one broken library fails only one row.
struct selected_gpu {
  const cuda_device_facts* cuda = nullptr;
  const nvml_device_facts* nvml = nullptr;
  const pci_facts* pci = nullptr;
  std::string trouble;  ///< why there is no such GPU

  [[nodiscard]] std::string name() const {
    if (cuda != nullptr) return cuda->name;
    return nvml != nullptr ? nvml->name : "the GPU";
  }
};

std::string list_of_devices(const cuda_facts& c) {
  std::string list;
  for (const auto& d : c.devices)
    list += fmt::format("{}cuda:{} {} {}", list.empty() ? "" : ", ", d.ordinal, d.name, d.uuid);
  return list.empty() ? "none" : list;
}

selected_gpu select(const facts& f) {
  selected_gpu s;
  const std::string& wanted = f.job.device;
  const auto& devices = f.gpu.cuda.devices;
  if (wanted.starts_with("uuid:")) {
    const auto it = std::ranges::find_if(
        devices, [&](const auto& d) { return d.uuid.starts_with(std::string_view(wanted).substr(5)); });
    if (it != devices.end()) s.cuda = &*it;
    if (s.cuda == nullptr && !devices.empty()) s.trouble = "no GPU has the UUID " + wanted.substr(5);
  } else {
    std::size_t ordinal = 0;
    if (wanted.starts_with("cuda:"))
      std::from_chars(wanted.data() + 5, wanted.data() + wanted.size(), ordinal);
    if (ordinal < devices.size()) {
      s.cuda = &devices[ordinal];
    } else if (!devices.empty()) {
      s.trouble = wanted + " does not exist";
    }
  }
  const auto& managed = f.gpu.nvml.devices;
  for (const auto& d : managed) {
    const bool same =
        s.cuda != nullptr && (d.uuid == s.cuda->uuid || plain_address(d.pci) == plain_address(s.cuda->pci));
    if (same) s.nvml = &d;
  }
  if (s.cuda == nullptr && devices.empty() && !managed.empty()) s.nvml = &managed.front();
  const std::string address = plain_address(s.cuda != nullptr   ? s.cuda->pci
                                            : s.nvml != nullptr ? s.nvml->pci
                                                                : std::string());
  for (const auto& p : f.gpu.pci)
    if (plain_address(p.address) == address) s.pci = &p;
  if (s.pci == nullptr && f.gpu.pci.size() == 1) s.pci = &f.gpu.pci.front();
  return s;
}

/// For rows that need NVML.
std::optional<finding> no_nvml(const facts& f, const selected_gpu& s) {
  if (auto skip = not_asked(f)) return skip;
  if (s.nvml != nullptr) return std::nullopt;
  return skipped("NVML reports nothing about this GPU (see gpu.nvml)");
}

std::string hang_or_death(const child_outcome& child) {
  return child.step.empty() ? child.trouble : fmt::format("{}: {}", child.step, child.trouble);
}

struct visibility {
  std::string echo;         ///< entry by entry
  std::size_t visible = 0;  ///< number of GPUs visible to CUDA
  bool doubtful = false;    ///< an entry matches nothing
};

/// CUDA reads the entries up to the first that matches nothing; a duplicate hides all GPUs.
visibility visibility_of(const facts& f) {
  visibility v;
  const auto& all = f.gpu.nvml.devices;
  const std::size_t known = all.empty() ? f.gpu.pci.size() : all.size();
  std::set<std::string> seen;
  bool twice = false;
  std::istringstream entries(f.gpu.visible_devices.value_or(""));
  for (std::string entry; std::getline(entries, entry, ',');) {
    std::string says;
    std::string who;  // the GPU that it names
    std::size_t number = 0;
    const auto [rest, fault] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    const bool numeric = fault == std::errc{} && rest == entry.data() + entry.size();
    if (v.doubtful) {
      says = "ignored, because it follows an invalid entry";
    } else if (numeric && (number < known || known == 0)) {
      who = number < all.size() ? all[number].uuid : entry;
      says = number < all.size() ? fmt::format("GPU {} {}", number, all[number].name) : "GPU " + entry;
    } else if (numeric) {
      says = fmt::format("there is no such GPU ({})", counted(known, "GPU"));
    } else if (entry.starts_with("GPU-")) {
      const auto it = std::ranges::find_if(all, [&](const auto& d) { return d.uuid.starts_with(entry); });
      if (it != all.end() || all.empty()) who = it != all.end() ? it->uuid : entry;
      says = it != all.end() ? it->name : all.empty() ? "not checked" : "no GPU has this UUID";
    } else if (entry.starts_with("MIG-")) {
      who = entry;
      says = "not checked";
    } else {
      says = "neither a number nor a UUID";
    }
    if (who.empty()) {
      v.doubtful = true;
    } else if (seen.insert(who).second) {
      ++v.visible;
    } else {
      says += ", given twice: CUDA then shows no GPU at all";
      twice = true;
    }
    v.echo += fmt::format("{}\"{}\": {}", v.echo.empty() ? "" : "; ", entry, says);
  }
  if (twice) v.visible = 0;
  return v;
}

bool hides_every_gpu(const facts& f) {
  return f.gpu.visible_devices && visibility_of(f).visible == 0;
}

std::string version_in_name(const std::string& path) {
  const auto at = path.rfind(".so.");
  const std::string version = at == std::string::npos ? "" : path.substr(at + 4);
  // libcuda.so.1 names an interface, not a version.
  return version.find('.') == std::string::npos ? "" : version;
}

std::string holders_text(const std::vector<gpu_holder>& holders) {
  std::string text;
  for (const auto& h : holders) {
    text += fmt::format("{}pid {}{}{}", text.empty() ? "" : ", ", h.pid, h.name.empty() ? "" : " " + h.name,
                        h.bytes > 0 ? " (" + bytes_for_people(h.bytes) + ")" : "");
  }
  return text;
}

struct xid_kind {
  int code;
  bool hardware;
  std::string_view meaning;
};
// From NVIDIA's list of Xid errors: those about the device rather than a program.
constexpr xid_kind xid_kinds[] = {
    {48, true, "double-bit ECC error"},           {61, true, "internal microcontroller breakpoint"},
    {62, true, "internal microcontroller halt"},  {63, false, "a memory row was remapped"},
    {64, true, "remapping a memory row failed"},  {74, true, "NVLink error"},
    {79, true, "the GPU has fallen off the bus"}, {92, true, "many single-bit ECC errors"},
    {94, false, "contained memory error"},        {95, true, "uncontained memory error"},
    {119, true, "the GSP does not respond"},      {120, true, "GSP error"},
    {140, true, "unrecovered ECC error"},         {143, true, "the GPU failed to initialise"},
};

}  // namespace

finding skipped(std::string why) {
  finding f;
  f.is = status::skip;
  f.why = std::move(why);
  return f;
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string_view remedy_of_init(int code) noexcept {
  switch (code) {
    case 3:
      return "the driver is not initialised: another thread or a forked parent shut CUDA down; restart the "
             "process and never use CUDA before fork";
    case 34:
      return "a stub of libcuda was loaded, which is only for linking: remove .../stubs from LD_LIBRARY_PATH";
    case 35: return "the driver is older than this program's CUDA: install a newer driver";
    case 46:
      return "the GPU is busy or unavailable: another process holds it in exclusive mode, or MIG is on "
             "without an instance; see `nvidia-smi`";
    case 100:
      return "the driver sees no GPU: check CUDA_VISIBLE_DEVICES, `nvidia-smi`, and in a container "
             "--gpus";
    case 209:
      return "the program has no code for this GPU: build it for its architecture (see gpu.architecture)";
    case 222:
      return "the driver's PTX compiler is older than the embedded PTX: install a newer driver, or build "
             "machine code for this GPU";
    case 802:
      return "the system is not ready: start the fabric manager of the driver's version (`systemctl start "
             "nvidia-fabricmanager`) and wait for it";
    case 803:
      return "the kernel module and libcuda have different versions: reboot after a driver update, or remove "
             "the libcuda that does not match the module";
    case 804:
      return "forward compatibility (cuda-compat) is not supported on this GPU: remove the compat folder "
             "from LD_LIBRARY_PATH and use the driver's own libcuda";
    case 805:
      return "the MPS client cannot connect: start nvidia-cuda-mps-control or unset CUDA_MPS_PIPE_DIRECTORY";
    case 999:
      return "an unknown driver error; usually /dev/nvidia-uvm is missing or not accessible: run "
             "`nvidia-modprobe -u -c 0`, reload nvidia_uvm, and read `dmesg | grep NVRM`";
    default: return "read `dmesg | grep NVRM`; reboot or reinstall the driver if `nvidia-smi` fails too";
  }
}

std::string_view minimum_driver(int runtime_version) noexcept {
  switch (runtime_version / 1000) {
    case 11: return "450.80.02";
    case 12: return "525.60.13";
    case 13: return "580.65.06";
    default: return "";
  }
}

bool has_code_for(const std::vector<std::string>& architectures, int major, int minor) {
  return std::ranges::any_of(architectures, [&](const std::string& text) {
    int number = 0;
    const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (fault != std::errc{}) return false;
    const std::string_view kind(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
    // Code for 90a or 100f runs only on that architecture.
    const bool specific = kind.starts_with("a") || kind.starts_with("f");
    const bool machine_code = !kind.ends_with("-virtual");
    const bool ptx = !kind.ends_with("-real") && !specific;
    if (machine_code && number / 10 == major && (specific ? number % 10 == minor : number % 10 <= minor))
      return true;
    return ptx && number <= major * 10 + minor;
  });
}

std::optional<finding> not_asked(const facts& f) {
  if (f.job.demand == gpu_demand::none) return skipped(f.job.why_no_gpu);
  if (f.job.demand == gpu_demand::if_there && !any_trace(f.gpu)) {
    return skipped("there is no NVIDIA GPU on this machine; device = \"auto\" uses the host device");
  }
  return std::nullopt;
}

finding check_build(const facts& f) {
  if (f.job.demand == gpu_demand::none) return skipped(f.job.why_no_gpu);
  if (!f.build.cuda) {
    const bool needed = f.job.demand == gpu_demand::required;
    return {needed ? status::fail : status::info, "built without nvcc: host device only"};
  }
  return {status::ok, fmt::format("includes the CUDA device, with the CUDA {} runtime",
                                  cuda_version(f.build.runtime_version))};
}

finding check_driver_module(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  if (f.gpu.module_version.empty()) {
    // Sandboxes pass the devices through but hide the module.
    if (f.gpu.module_answers) return {status::ok, "it responds, but this kernel does not report its version"};
    return {status::fail, "no NVIDIA kernel module is loaded"};
  }
  return {status::ok, "version " + f.gpu.module_version};
}

finding check_device_nodes(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const auto& nodes = f.gpu.nodes;
  const auto has = [&](std::string_view name) { return std::ranges::find(nodes, name) != nodes.end(); };
  std::string missing;
  const auto add = [&](std::string_view name) {
    missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  const bool a_gpu = std::ranges::any_of(nodes, [](const std::string& n) {
    return n.size() > 6 &&
           std::all_of(n.begin() + 6, n.end(), [](unsigned char c) { return std::isdigit(c); });
  });
  if (!a_gpu) add("/dev/nvidia0");
  for (const auto* name : {"nvidiactl", "nvidia-uvm"})
    if (!has(name)) add(std::string("/dev/") + name);
  if (!missing.empty()) return {status::fail, "missing: " + missing};
  if (!f.gpu.closed.empty()) {
    std::string closed;
    for (const auto& n : f.gpu.closed) closed += (closed.empty() ? "/dev/" : ", /dev/") + n;
    return {status::fail, "not accessible to this user: " + closed, "",
            "add the user to the files' group (often \"video\" or \"render\"), or fix their mode"};
  }
  return {status::ok, counted(nodes.size(), "node") + ", all accessible"};
}

finding check_libcuda(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const cuda_facts& c = f.gpu.cuda;
  if (c.path.empty()) {
    if (c.child.ending == child_outcome::how::not_started) return skipped(c.child.trouble);
    if (c.load_error.empty()) return {status::fail, hang_or_death(c.child)};
    return {status::fail, c.load_error};
  }
  if (c.path.find("/stubs/") != std::string::npos) {
    return {status::fail, c.path + ", a stub that is only for linking", "", std::string(remedy_of_init(34))};
  }
  const std::string version = version_in_name(c.path);
  if (!version.empty() && !f.gpu.module_version.empty() && version != f.gpu.module_version) {
    return {status::fail,
            fmt::format("{} has version {}, the kernel module has {}", c.path, version, f.gpu.module_version),
            "", std::string(remedy_of_init(803))};
  }
  return {status::ok, c.path};
}

finding check_driver_runtime(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  if (!f.build.cuda) return skipped("this build has no CUDA device (built without nvcc)");
  if (!f.gpu.cuda.driver_version) return skipped("the driver did not report its version (see gpu.libcuda)");
  const int driver = *f.gpu.cuda.driver_version;
  const int runtime = f.build.runtime_version;
  const std::string observed =
      fmt::format("the driver{} supports CUDA {}; this program was built with CUDA {}",
                  f.gpu.module_version.empty() ? "" : " " + f.gpu.module_version, cuda_version(driver),
                  cuda_version(runtime));
  if (driver / 1000 < runtime / 1000) {
    const auto oldest = minimum_driver(runtime);
    return {status::fail, observed, fmt::format("a driver of at least {}", oldest),
            fmt::format("install driver {} or newer, or build with CUDA {} or older", oldest,
                        cuda_version(driver))};
  }
  if (driver < runtime) return {status::warn, observed};
  return {status::ok, observed};
}

finding check_toolkit(const facts& f) {
  if (f.job.demand == gpu_demand::none) return skipped(f.job.why_no_gpu);
  return {status::info, f.gpu.toolkit.empty() ? "no toolkit is installed" : "CUDA " + f.gpu.toolkit};
}

finding check_init(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const cuda_facts& c = f.gpu.cuda;
  if (c.init_code == no_device && hides_every_gpu(f))
    return skipped("CUDA_VISIBLE_DEVICES hides every GPU (see gpu.visible-devices)");
  if (c.path.empty()) return skipped("libcuda could not be loaded (see gpu.libcuda)");
  if (!c.init_code) {
    return {status::fail, hang_or_death(c.child), "",
            "the driver hangs: read `dmesg | grep NVRM`, look for processes in state D, reboot"};
  }
  if (*c.init_code != 0) {
    return {status::fail, fmt::format("error {} ({})", *c.init_code, c.init_name), "",
            std::string(remedy_of_init(*c.init_code))};
  }
  if (!c.child.good()) return {status::fail, hang_or_death(c.child)};
  return {status::ok, counted(c.devices.size(), "GPU") + " visible to CUDA"};
}

finding check_nvml(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const nvml_facts& n = f.gpu.nvml;
  if (n.child.ending == child_outcome::how::not_started) return skipped(n.child.trouble);
  if (!n.load_error.empty()) return {status::warn, n.load_error};
  if (!n.init_code) return {status::fail, hang_or_death(n.child)};
  if (*n.init_code != 0) {
    return {*n.init_code == 18 ? status::fail : status::warn,
            fmt::format("error {} ({})", *n.init_code, n.init_text), "",
            *n.init_code == 18 ? std::string(remedy_of_init(803)) : std::string()};
  }
  if (!n.child.good()) return {status::fail, hang_or_death(n.child)};
  return {status::ok, counted(n.devices.size(), "GPU") + " under management"};
}

finding check_visible_devices(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  if (!f.gpu.visible_devices) return {status::ok, "not set: every GPU is visible"};
  // With "auto", hiding them all is a way to use the host device: worth a warning, not a failure.
  const status hidden = f.job.demand == gpu_demand::required ? status::fail : status::warn;
  if (f.gpu.visible_devices->empty()) return {hidden, "set but empty: every GPU is hidden"};
  const visibility v = visibility_of(f);
  if (v.visible == 0) return {hidden, v.echo + ": no GPU is visible"};
  return {v.doubtful ? status::warn : status::ok, v.echo};
}

finding check_selected(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const selected_gpu s = select(f);
  if (!s.trouble.empty())
    return {status::fail, fmt::format("{}; there are: {}", s.trouble, list_of_devices(f.gpu.cuda))};
  if (s.cuda != nullptr)
    return {status::ok, fmt::format("cuda:{} {} {}", s.cuda->ordinal, s.cuda->name, s.cuda->uuid)};
  if (s.nvml != nullptr && f.gpu.cuda.init_code.value_or(1) != 0)
    return {status::ok, fmt::format("{} {} according to NVML", s.nvml->name, s.nvml->uuid)};
  if (f.gpu.cuda.init_code.value_or(1) != 0) return skipped("CUDA did not initialise (see gpu.cuinit)");
  return {status::fail, "CUDA initialised but shows no GPU"};
}

finding check_architecture(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  if (!f.build.cuda) return skipped("this build has no CUDA device (built without nvcc)");
  const selected_gpu s = select(f);
  int major = 0;
  int minor = 0;
  if (s.cuda != nullptr) {
    major = s.cuda->major;
    minor = s.cuda->minor;
  } else if (s.nvml != nullptr && s.nvml->major && s.nvml->minor) {
    major = *s.nvml->major;
    minor = *s.nvml->minor;
  } else {
    return skipped("no GPU reported its compute capability (see gpu.cuinit and gpu.nvml)");
  }
  std::string built;
  for (const auto& a : f.build.architectures) built += (built.empty() ? "" : ", ") + a;
  const std::string observed = fmt::format("{} has compute capability {}.{}; this program has code for {}",
                                           s.name(), major, minor, built);
  if (has_code_for(f.build.architectures, major, minor)) return {status::ok, observed};
  return {status::fail, observed, "",
          fmt::format("build with -DCMAKE_CUDA_ARCHITECTURES={}{}", major, minor)};
}

finding check_mig(const facts& f) {
  const selected_gpu s = select(f);
  if (auto skip = no_nvml(f, s)) return *skip;
  if (!s.nvml->mig) return {status::ok, "this GPU has no MIG mode"};
  if (!*s.nvml->mig) return {status::ok, "off"};
  if (s.cuda == nullptr && f.gpu.cuda.init_code == 0)
    return {status::fail, "on, but no instance is visible to CUDA"};
  return {status::info, "on: this job sees one instance, a part of the GPU"};
}

finding check_compute_mode(const facts& f) {
  const selected_gpu s = select(f);
  if (auto skip = no_nvml(f, s)) return *skip;
  if (!s.nvml->compute_mode) return skipped("the driver does not report the compute mode");
  const std::string holders = holders_text(s.nvml->holders);
  switch (*s.nvml->compute_mode) {
    case 0: return {status::ok, "default" + (holders.empty() ? "" : "; in use by " + holders)};
    case 2: return {status::fail, "prohibited: no process may create a context"};
    default:
      if (holders.empty()) return {status::ok, "exclusive process, and not in use"};
      return {status::fail, "exclusive process, held by " + holders, "",
              "end that process, or `nvidia-smi -c DEFAULT`"};
  }
}

finding check_device_memory(const facts& f) {
  const selected_gpu s = select(f);
  if (auto skip = no_nvml(f, s)) return *skip;
  if (!s.nvml->memory_free || !s.nvml->memory_total) return skipped("the driver does not report free memory");
  const std::uint64_t need = f.job.device_need.value_or(0) + context_bytes;
  const std::string holders = holders_text(s.nvml->holders);
  const std::string observed =
      fmt::format("{} of {} free{}{}", bytes_for_people(*s.nvml->memory_free),
                  bytes_for_people(*s.nvml->memory_total), holders.empty() ? "" : "; in use by ", holders);
  const std::string expected =
      f.job.device_need ? fmt::format("{} for the ring of buffers and {} for the context",
                                      bytes_for_people(*f.job.device_need), bytes_for_people(context_bytes))
                        : fmt::format("{} for a context", bytes_for_people(context_bytes));
  return {*s.nvml->memory_free < need ? status::fail : status::ok, observed, expected};
}

finding check_ecc(const facts& f) {
  const selected_gpu s = select(f);
  if (auto skip = no_nvml(f, s)) return *skip;
  const nvml_device_facts& d = *s.nvml;
  if (d.remap_failed.value_or(false)) {
    return {status::fail, "remapping a broken memory row failed", "", "replace this GPU"};
  }
  if (d.ecc_uncorrected.value_or(0) > 0) {
    return {status::fail, counted(*d.ecc_uncorrected, "uncorrected error") + " since the driver was loaded"};
  }
  if (d.remap_pending.value_or(false)) return {status::warn, "a broken memory row is waiting to be remapped"};
  if (!d.ecc_uncorrected) return {status::ok, "this GPU does not count ECC errors, or ECC is off"};
  return {status::ok, "no uncorrected error"};
}

finding check_xid(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  if (!f.gpu.xids) return skipped("the kernel's log cannot be read: " + f.gpu.kernel_log);
  if (f.gpu.xids->empty()) return {status::ok, "none in " + f.gpu.kernel_log};
  std::set<int> codes;
  for (const auto& x : *f.gpu.xids) codes.insert(x.code);
  std::string text;
  bool hardware = false;
  for (const int code : codes) {
    const auto* kind = std::ranges::find(xid_kinds, code, &xid_kind::code);
    const bool known = kind != std::end(xid_kinds);
    hardware |= known && kind->hardware;
    text += fmt::format("{}Xid {}{}", text.empty() ? "" : ", ", code,
                        known ? " (" + std::string(kind->meaning) + ")" : "");
  }
  return {hardware ? status::fail : status::warn,
          fmt::format("{}: {} in {}", counted(f.gpu.xids->size(), "event"), text, f.gpu.kernel_log), "",
          hardware
              ? ""
              : "often caused by a program (a bad address), not by the GPU: check what ran at that time"};
}

finding check_numa(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const selected_gpu s = select(f);
  if (s.pci == nullptr) return skipped("this GPU is not on the PCI bus");
  if (!s.pci->numa_node || *s.pci->numa_node < 0) return {status::ok, "the GPU belongs to no NUMA node"};
  if (s.pci->node_cpus.empty()) return skipped("the kernel does not report the cores of the GPU's node");
  if (f.machine.allowed_cpus.empty()) return skipped("the kernel does not report which cores are allowed");
  const auto here = std::ranges::count_if(f.machine.allowed_cpus, [&](std::uint32_t cpu) {
    return std::ranges::find(s.pci->node_cpus, cpu) != s.pci->node_cpus.end();
  });
  const auto of_all = f.machine.allowed_cpus.size();
  const std::string observed = fmt::format("the GPU is on node {}; {} of {} are there", *s.pci->numa_node,
                                           here, counted(of_all, "allowed core"));
  if (here > 0) return {status::ok, observed};
  return {status::warn, observed, "",
          fmt::format("run with `numactl --cpunodebind={} --preferred={}`", *s.pci->numa_node,
                      *s.pci->numa_node)};
}

finding check_pcie(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const selected_gpu s = select(f);
  const pci_facts* p = s.pci;
  const nvml_device_facts* n = s.nvml;
  // Prefer the driver's values; a virtual machine's bus may show anything.
  const bool by_driver =
      n != nullptr && n->link_width && n->link_width_max && n->link_generation && n->link_generation_max;
  const bool by_bus = p != nullptr && p->link_width && p->link_width_max;
  if (!by_driver && !by_bus) return skipped("neither the kernel nor NVML reports the link");
  const int width = by_driver ? *n->link_width : *p->link_width;
  const int width_max = by_driver ? *n->link_width_max : *p->link_width_max;
  std::string observed = fmt::format("x{} of x{}", width, width_max);
  bool slow = false;
  if (by_driver) {
    observed += fmt::format(", generation {} of {}", *n->link_generation, *n->link_generation_max);
    slow = *n->link_generation < *n->link_generation_max;
  } else if (p->link_speed && p->link_speed_max) {
    observed += fmt::format(", {:g} of {:g} GT/s", *p->link_speed, *p->link_speed_max);
    slow = *p->link_speed < *p->link_speed_max;
  }
  if (width < width_max) return {status::warn, observed};
  if (!slow) return {status::ok, observed};
  if (n != nullptr && n->performance_state.value_or(0) >= first_idle_state)
    return {status::info, observed + "; the GPU is idle and has slowed its link down", "",
            "none needed: it speeds up under load"};
  return {status::warn, observed};
}

finding check_deep(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  if (!f.deep) return skipped("only with --deep");
  const deep_facts& d = *f.deep;
  if (d.error) {
    return {status::fail, fmt::format("{}: {}", d.child.step, d.error->message), "",
            d.error->os_code != 0 ? std::string(remedy_of_init(d.error->os_code)) : std::string()};
  }
  if (d.child.ending == child_outcome::how::not_started) return skipped(d.child.trouble);
  if (!d.child.good()) return {status::fail, hang_or_death(d.child)};
  if (!d.equal) return {status::fail, d.device + " computed different values than the host device"};
  return {status::ok,
          fmt::format("{}: context, allocation, copy, kernel, copy back, compared: equal ({:.2f} s)",
                      d.device, d.seconds)};
}

finding check_pinning(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  if (!f.deep) return skipped("only with --deep");
  const deep_facts& d = *f.deep;
  if (d.asked_to_pin == 0) return skipped("the device could not be opened (see gpu.deep)");
  const std::string observed =
      fmt::format("{} of {}", bytes_for_people(d.pinned), bytes_for_people(d.asked_to_pin));
  // Slower, not wrong: a run works with pageable copies.
  if (d.pinned == d.asked_to_pin) return {status::ok, observed};
  return {status::warn, observed + (d.said.empty() ? "" : "; " + d.said)};
}

}  // namespace penstock::doctor
