#include "runtime/device/nvml.hpp"
#include "tools/penstock-probe/probes.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace penstock::probe {
namespace {

// NVML's structures and constants, declared here because its header belongs to the toolkit.
using device::nvml;
struct pci_info {
  char legacy_address[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};
struct memory_info {
  unsigned long long total, free, used;
};
constexpr int uncorrected_errors = 1;
constexpr int since_driver_load = 0;

/// Calls an NVML function that returns a number, and adds the number if the call succeeds.
template <class Number = unsigned>
void add_number(nlohmann::json& to, const char* key, const nvml& n, const char* function, nvml::gpu gpu) {
  Number value{};
  if (n.ask(function, gpu, &value)) to[key] = value;
}

nlohmann::json holders_of(const nvml& n, nvml::gpu gpu) {
  nlohmann::json list = nlohmann::json::array();
  for (const gpu_process& p : n.processes_on(gpu).value_or(std::vector<gpu_process>()))
    list.push_back({{"pid", p.pid}, {"bytes", p.bytes}});
  return list;
}

nlohmann::json facts_of(const nvml& n, nvml::gpu gpu) {
  nlohmann::json facts;
  std::array<char, 128> text{};
  const auto text_size = static_cast<unsigned>(text.size());
  if (n.ask("nvmlDeviceGetName", gpu, text.data(), text_size)) facts["name"] = text.data();
  if (n.ask("nvmlDeviceGetUUID", gpu, text.data(), text_size)) facts["uuid"] = text.data();
  pci_info pci{};
  if (n.ask("nvmlDeviceGetPciInfo_v3", gpu, &pci)) facts["pci"] = pci.address;
  int major = 0;
  int minor = 0;
  if (n.ask("nvmlDeviceGetCudaComputeCapability", gpu, &major, &minor)) {
    facts["major"] = major;
    facts["minor"] = minor;
  }
  memory_info memory{};
  if (n.ask("nvmlDeviceGetMemoryInfo", gpu, &memory)) {
    facts["memory_total"] = memory.total;
    facts["memory_free"] = memory.free;
  }
  add_number(facts, "compute_mode", n, "nvmlDeviceGetComputeMode", gpu);
  unsigned mig = 0;
  unsigned mig_pending = 0;
  if (n.ask("nvmlDeviceGetMigMode", gpu, &mig, &mig_pending)) facts["mig"] = mig == 1;
  unsigned long long errors = 0;
  if (n.ask("nvmlDeviceGetTotalEccErrors", gpu, uncorrected_errors, since_driver_load, &errors))
    facts["ecc_uncorrected"] = errors;
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  if (n.ask("nvmlDeviceGetRemappedRows", gpu, &corrected, &uncorrected, &pending, &failed)) {
    facts["remap_pending"] = pending != 0;
    facts["remap_failed"] = failed != 0;
  }
  add_number(facts, "link_generation", n, "nvmlDeviceGetCurrPcieLinkGeneration", gpu);
  add_number(facts, "link_generation_max", n, "nvmlDeviceGetMaxPcieLinkGeneration", gpu);
  add_number(facts, "link_width", n, "nvmlDeviceGetCurrPcieLinkWidth", gpu);
  add_number(facts, "link_width_max", n, "nvmlDeviceGetMaxPcieLinkWidth", gpu);
  add_number(facts, "performance_state", n, "nvmlDeviceGetPerformanceState", gpu);
  facts["holders"] = holders_of(n, gpu);
  return facts;
}

// ---- links

constexpr unsigned links_max = 36;  // per GPU; today's have up to 18
constexpr unsigned link_to_switch = 2;
constexpr unsigned peer_over_nvlink = 2;

/// The working NVLinks of a GPU: the GPUs at their other ends, and how many lead to a switch.
struct nvlinks {
  std::vector<std::string> to_gpus;  // addresses on the PCI bus
  unsigned to_switches = 0;
};

nvlinks nvlinks_of(const nvml& n, nvml::gpu gpu) {
  nvlinks found;
  for (unsigned link = 0; link < links_max; ++link) {
    unsigned active = 0;
    if (!n.ask("nvmlDeviceGetNvLinkState", gpu, link, &active) || active == 0) continue;
    unsigned kind = 0;
    pci_info other{};
    if (n.ask("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link, &kind) && kind == link_to_switch) {
      ++found.to_switches;
    } else if (n.ask("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, link, &other)) {
      found.to_gpus.emplace_back(other.address);
    }
  }
  return found;
}

nlohmann::json link_between(const nvml& n, const std::vector<nvml::gpu>& gpus,
                            const std::vector<nvlinks>& wires, std::size_t a, std::size_t b) {
  nlohmann::json link{{"a", a}, {"b", b}};
  unsigned ancestor = 0;
  if (n.ask("nvmlDeviceGetTopologyCommonAncestor", gpus[a], gpus[b], &ancestor)) link["ancestor"] = ancestor;
  pci_info other{};
  std::size_t lanes = 0;
  if (n.ask("nvmlDeviceGetPciInfo_v3", gpus[b], &other))
    lanes = static_cast<std::size_t>(std::ranges::count(wires[a].to_gpus, std::string(other.address)));
  // With NVSwitch, each GPU reaches every other GPU over all of its links.
  unsigned status = 1;
  const bool reachable =
      n.ask("nvmlDeviceGetP2PStatus", gpus[a], gpus[b], peer_over_nvlink, &status) && status == 0;
  if (lanes == 0 && reachable) lanes = std::min(wires[a].to_switches, wires[b].to_switches);
  link["nvlinks"] = lanes;
  return link;
}

nlohmann::json links_between(const nvml& n, const std::vector<nvml::gpu>& gpus) {
  std::vector<nvlinks> wires;
  for (const nvml::gpu gpu : gpus) wires.push_back(nvlinks_of(n, gpu));
  nlohmann::json links = nlohmann::json::array();
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < gpus.size(); ++b) links.push_back(link_between(n, gpus, wires, a, b));
  }
  return links;
}

}  // namespace

int ask_nvml(const std::string& root) {
  device::driver_library library = open_library(device::nvml_library_name, root);
  if (!library) return 0;
  nvml n(std::move(library));
  begin_step("nvmlInit");
  const auto started = n.start();
  if (!started && started.error().os_code == 0) {
    tell({{"load_error", started.error().message}});
    return 0;
  }
  tell({{"init_code", started ? 0 : started.error().os_code},
        {"init_text", started ? "" : started.error().message}});
  if (!started) return 0;
  begin_step("querying the GPUs' state");
  nlohmann::json devices = nlohmann::json::array();
  std::vector<nvml::gpu> gpus;
  for (unsigned i = 0; i < n.count(); ++i) {
    const auto gpu = n.by_index(i);
    if (!gpu) continue;
    devices.push_back(facts_of(n, *gpu));
    gpus.push_back(*gpu);
  }
  tell({{"devices", devices}});
  if (gpus.size() > 1) {
    begin_step("querying the links between the GPUs");
    tell({{"links", links_between(n, gpus)}});
  }
  begin_step("closing NVML");
  return 0;
}

}  // namespace penstock::probe
