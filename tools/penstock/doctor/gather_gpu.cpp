#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/worker_slots.hpp"
#include "runtime/process/cores.hpp"
#include "tools/penstock/doctor/gather.hpp"
#include "tools/penstock/machine/probe.hpp"
#include "tools/penstock/machine/root_files.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace penstock::doctor {

using namespace machine;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kernel_log_bytes_max = 32 * MiB;

nvml_facts ask_nvml(const gather_options& options) {
  const probed p = probe({"nvml", options.root.string()}, options.probe_deadline);
  nvml_facts n;
  n.child = p.child;
  take(p.told, "load_error", n.load_error, "init_code", n.init_code, "init_text", n.init_text);
  for (const json& d : p.told.value("devices", json::array())) {
    nvml_device_facts facts;
    take(d, "name", facts.name, "uuid", facts.uuid, "pci", facts.pci, "major", facts.major,
         "minor", facts.minor, "memory_total", facts.memory_total, "memory_free", facts.memory_free,
         "compute_mode", facts.compute_mode, "mig", facts.mig, "ecc_uncorrected", facts.ecc_uncorrected,
         "remap_pending", facts.remap_pending, "remap_failed", facts.remap_failed,
         "link_generation", facts.link_generation, "link_generation_max", facts.link_generation_max,
         "link_width", facts.link_width, "link_width_max", facts.link_width_max,
         "performance_state", facts.performance_state);
    for (const json& h : d.value("holders", json::array())) {
      // In a container these pids may belong to another pid namespace: the name is only a hint.
      const auto pid = h.value("pid", 0);
      facts.holders.push_back({pid, text_of(options.root / fmt::format("proc/{}/comm", pid)),
                               h.value("bytes", std::uint64_t{0})});
    }
    n.devices.push_back(std::move(facts));
  }
  for (const json& l : p.told.value("links", json::array())) {
    link_facts link;
    take(l, "a", link.a, "b", link.b, "ancestor", link.ancestor, "nvlinks", link.nvlinks);
    n.links.push_back(link);
  }
  return n;
}

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue ...": the first word of digits and dots.
std::string module_version(const fs::path& root) {
  std::istringstream words(field_of(text_of(root / "proc/driver/nvidia/version"), "NVRM version:"));
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  }
  return text_of(root / "sys/module/nvidia/version");
}

/// The node's existence proves nothing: without the module, opening it fails.
bool answers(const fs::path& node) {
  std::error_code fault;
  if (!fs::is_character_file(node, fault)) return false;
  return static_cast<bool>(unique_fd(::open(node.c_str(), O_RDWR | O_CLOEXEC)));
}

void look_at_nodes(const fs::path& root, gpu_facts& to) {
  std::error_code fault;
  to.module_answers = answers(root / "dev/nvidiactl");
  for (const auto& entry : fs::directory_iterator(root / "dev", fault)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("nvidia") || entry.is_directory(fault)) continue;
    to.nodes.push_back(name);
    const bool needed =
        name.starts_with("nvidia-uvm") ? name == "nvidia-uvm" : name.find('-') == std::string::npos;
    if (needed && name != "nvidia-modeset" && ::access(entry.path().c_str(), R_OK | W_OK) != 0)
      to.closed.push_back(name);
  }
  std::ranges::sort(to.nodes);
  std::ranges::sort(to.closed);
}

std::vector<pci_facts> look_at_bus(const fs::path& root) {
  std::vector<pci_facts> found;
  std::error_code fault;
  for (const auto& entry : fs::directory_iterator(root / "sys/bus/pci/devices", fault)) {
    const fs::path folder = entry.path();
    const std::string kind = text_of(folder / "class");
    // Only display and 3D controllers, not NVIDIA's bridges and audio functions.
    if (text_of(folder / "vendor") != "0x10de" || !(kind.starts_with("0x0300") || kind.starts_with("0x0302")))
      continue;
    pci_facts p;
    p.address = folder.filename();
    p.numa_node = number_of<int>(folder / "numa_node");
    if (p.numa_node && *p.numa_node >= 0) {
      p.node_cpus =
          process::parse_core_list(text_of(root / fmt::format("sys/devices/system/node/node{}/cpulist", *p.numa_node)));
    }
    p.link_speed = number_of<double>(folder / "current_link_speed");
    p.link_speed_max = number_of<double>(folder / "max_link_speed");
    p.link_width = number_of<int>(folder / "current_link_width");
    p.link_width_max = number_of<int>(folder / "max_link_width");
    found.push_back(std::move(p));
  }
  std::ranges::sort(found, {}, &pci_facts::address);
  return found;
}

/// The current contents of a log, without waiting for more: /dev/kmsg returns one record per read, and EAGAIN
/// at the end.
std::optional<std::string> log_text(const fs::path& file, int& fault) {
  const unique_fd log(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!log) {
    fault = errno;
    return std::nullopt;
  }
  std::string all;
  std::array<char, 16 * 1024> piece{};
  while (all.size() < kernel_log_bytes_max) {
    const ssize_t bytes = ::read(log.get(), piece.data(), piece.size());
    if (bytes < 0 && (errno == EPIPE || errno == EINTR)) continue;  // old records were overwritten meanwhile
    if (bytes < 0 && errno != EAGAIN && all.empty()) {
      fault = errno;
      return std::nullopt;
    }
    if (bytes <= 0) break;
    all.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  return all;
}

void look_for_xids(const fs::path& root, gpu_facts& to) {
  int fault = 0;
  std::optional<std::string> text;
  for (const char* log : {"dev/kmsg", "var/log/kern.log"}) {
    text = log_text(root / log, fault);
    to.kernel_log = text ? std::string("/") + log : std::string("/dev/kmsg: ") + std::strerror(fault);
    if (text) break;
  }
  if (!text) return;
  to.xids.emplace();
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    // "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus."
    const auto at = line.find("NVRM: Xid (");
    if (at == std::string::npos) continue;
    const auto close = line.find("):", at);
    if (close == std::string::npos) continue;
    const int code = std::atoi(line.c_str() + close + 2);
    if (code > 0) to.xids->push_back({code, line.substr(at + 11, close - at - 11)});
  }
}

std::string find_toolkit(const fs::path& root) {
  for (const char* folder : {"usr/local/cuda", "opt/cuda", "usr"}) {
    const json version = json::parse(text_of(root / folder / "version.json"), nullptr, false);
    if (version.is_object()) {
      const std::string number = version.value("/cuda/version"_json_pointer, "");
      if (!number.empty()) return fmt::format("{} in /{}", number, folder);
    }
    const int number =
        std::atoi(field_of(text_of(root / folder / "include/cuda.h"), "#define CUDA_VERSION").c_str());
    if (number > 0) return fmt::format("{}.{} in /{}", number / 1000, number % 1000 / 10, folder);
  }
  return {};
}

}  // namespace

build_facts facts_of_this_build() {
  build_facts b;
  b.cuda = PENSTOCK_DOCTOR_CUDA;
  b.runtime_version = PENSTOCK_DOCTOR_RUNTIME;
  std::istringstream list(PENSTOCK_DOCTOR_ARCHITECTURES);
  for (std::string a; std::getline(list, a, ',');)
    if (!a.empty()) b.architectures.push_back(a);
  return b;
}

gpu_facts look_at_gpu(const gather_options& options) {
  gpu_facts g;
  g.cuda = look_at_cuda(options.root, options.probe_deadline);
  g.nvml = ask_nvml(options);
  // Look only now, because loading the driver's libraries for the first time may create device nodes.
  g.module_version = module_version(options.root);
  look_at_nodes(options.root, g);
  g.pci = look_at_bus(options.root);
  look_for_xids(options.root, g);
  g.toolkit = find_toolkit(options.root);
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) g.visible_devices = visible;
  return g;
}

deep_facts go_deep(const std::string& device, const config& settings, std::uint32_t workers,
                   std::uint64_t slot_bytes) {
  const std::uint32_t slots = slots_of_a_worker(settings.loader, slot_bytes);
  const std::uint64_t bytes = slot_bytes * slots * workers;
  // Reserving and page-locking take about half a second per GiB; with a hung driver they never return.
  const auto deadline = std::chrono::milliseconds(60'000 + bytes / GiB * 2'000);
  const probed p = probe({"deep", device == "auto" ? "cuda" : device, std::to_string(workers),
                          std::to_string(slots), std::to_string(slot_bytes)},
                         deadline);
  deep_facts d;
  d.child = p.child;
  if (p.told.contains("error")) {
    d.error = failure{errc::device_unavailable, p.told.value("error", ""), p.told.value("code", 0)};
  }
  take(p.told, "device", d.device, "equal", d.equal, "asked_to_pin", d.asked_to_pin, "pinned", d.pinned,
       "seconds", d.seconds);
  d.said = p.said;
  return d;
}

std::string copy_without_pinning(int ordinal) {
  const probed p = probe({"copy", std::to_string(ordinal)}, std::chrono::seconds(60));
  for (const char* key : {"load_error", "error"})
    if (p.told.contains(key)) return p.told.value(key, "");
  return p.child.good() ? std::string() : p.child.step + ": " + p.child.trouble;
}

}  // namespace penstock::doctor
