#include "runtime/base/number.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/doctor/row_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace penstock::doctor {
namespace {

// A context takes 300 to 500 MiB of device memory before we allocate anything.
constexpr std::uint64_t context_bytes = 512 * MiB;
constexpr int first_idle_state = 5;  // performance states from here on mean idle

struct xid_kind {
  int code;
  bool hardware;
  std::string_view meaning;
};
// The errors in NVIDIA's list of Xids that are about the device rather than a program.
constexpr xid_kind xid_kinds[] = {
    {48, true, "double-bit ECC error"},           {61, true, "internal microcontroller breakpoint"},
    {62, true, "internal microcontroller halt"},  {63, false, "a memory row was remapped"},
    {64, true, "remapping a memory row failed"},  {74, true, "NVLink error"},
    {79, true, "the GPU has fallen off the bus"}, {92, true, "many single-bit ECC errors"},
    {94, false, "contained memory error"},        {95, true, "uncontained memory error"},
    {119, true, "the GSP does not respond"},      {120, true, "GSP error"},
    {140, true, "unrecovered ECC error"},         {143, true, "the GPU failed to initialise"},
};

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
    const std::size_t ordinal = wanted.starts_with("cuda:") ? whole_number<std::size_t>(wanted.substr(5)).value_or(0) : 0;
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

/// The finding of a row that needs NVML, if NVML reports nothing.
std::optional<finding> no_nvml(const facts& f, const selected_gpu& s) {
  if (auto skip = not_asked(f)) return skip;
  if (s.nvml != nullptr) return std::nullopt;
  return skipped("NVML reports nothing about this GPU (see gpu.nvml)");
}

std::string holders_text(const std::vector<gpu_holder>& holders) {
  std::string text;
  for (const auto& h : holders) {
    text += fmt::format("{}pid {}{}{}", text.empty() ? "" : ", ", h.pid, h.name.empty() ? "" : " " + h.name,
                        h.bytes > 0 ? " (" + bytes_for_people(h.bytes) + ")" : "");
  }
  return text;
}

}  // namespace

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

finding check_selected(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const selected_gpu s = select(f);
  if (!s.trouble.empty())
    return {status::fail, fmt::format("{}; available: {}", s.trouble, list_of_devices(f.gpu.cuda))};
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
  const std::string observed = fmt::format("{} has compute capability {}.{}; this program has code for {}",
                                           s.name(), major, minor, fmt::join(f.build.architectures, ", "));
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
  const auto here = std::ranges::count_if(f.machine.allowed_cpus, [&](int cpu) {
    return std::ranges::find(s.pci->node_cpus, cpu) != s.pci->node_cpus.end();
  });
  const auto of_all = f.machine.allowed_cpus.size();
  const std::string observed = fmt::format("the GPU is on NUMA node {}; {} of {} are on that node",
                                           *s.pci->numa_node, here, counted(of_all, "allowed core"));
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
