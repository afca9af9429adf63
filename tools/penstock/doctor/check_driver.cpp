#include "runtime/base/number.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/doctor/row_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace penstock::doctor {
namespace {

constexpr int no_device = 100;  // from cuInit

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool any_trace(const gpu_facts& g) {
  return !g.module_version.empty() || !g.nodes.empty() || !g.pci.empty() || !g.cuda.devices.empty() ||
         !g.nvml.devices.empty();
}

struct visibility {
  std::string echo;         ///< the value of CUDA_VISIBLE_DEVICES, entry by entry
  std::size_t visible = 0;  ///< number of GPUs visible to CUDA
  bool doubtful = false;    ///< whether an entry matches nothing
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
    std::string who;  // the GPU that the entry names
    const auto number = whole_number<std::size_t>(entry);
    if (v.doubtful) {
      says = "ignored, because it follows an invalid entry";
    } else if (number && (*number < known || known == 0)) {
      who = *number < all.size() ? all[*number].uuid : entry;
      says = *number < all.size() ? fmt::format("GPU {} {}", *number, all[*number].name) : "GPU " + entry;
    } else if (number) {
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
      says += ", written twice: CUDA then shows no GPU at all";
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

}  // namespace

finding skipped(std::string why) {
  finding f;
  f.is = status::skip;
  f.why = std::move(why);
  return f;
}

std::optional<finding> not_asked(const facts& f) {
  if (f.job.demand == gpu_demand::none) return skipped(f.job.why_no_gpu);
  if (f.job.demand == gpu_demand::if_there && !any_trace(f.gpu)) {
    return skipped("there is no NVIDIA GPU on this machine; device = \"auto\" uses the host device");
  }
  return std::nullopt;
}

std::string hang_or_death(const child_outcome& child) {
  return child.step.empty() ? child.trouble : fmt::format("{}: {}", child.step, child.trouble);
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
    return {status::fail, fmt::format("not accessible to this user: /dev/{}", fmt::join(f.gpu.closed, ", /dev/")), "",
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
  // With "auto", hiding all GPUs is one way to use the host device: worth a warning, not a failure.
  const status hidden = f.job.demand == gpu_demand::required ? status::fail : status::warn;
  if (f.gpu.visible_devices->empty()) return {hidden, "set but empty: every GPU is hidden"};
  const visibility v = visibility_of(f);
  if (v.visible == 0) return {hidden, v.echo + ": no GPU is visible"};
  return {v.doubtful ? status::warn : status::ok, v.echo};
}

}  // namespace penstock::doctor
