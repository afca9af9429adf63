#include "tools/penstock-probe/driver_library.hpp"
#include "tools/penstock-probe/probes.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <vector>

namespace penstock::probe {
namespace {

// NVML's structures and numbers as its interface fixes them; the header belongs to the toolkit.
using device_handle = void*;
struct pci_info {
  char legacy_address[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};
struct memory_info {
  unsigned long long total, free, used;
};
struct process_info {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr int insufficient_size = 7;
constexpr int uncorrected_errors = 1;
constexpr int since_driver_load = 0;
constexpr unsigned long long not_available = ~0ULL;

struct nvml {
  const driver_library& library;

  /// Calls a function by name; false if it is missing or says no.
  template <class... Arguments>
  bool ask(const char* name, Arguments... arguments) const {
    int (*function)(Arguments...) = nullptr;
    return library.find(name, function) && function(arguments...) == 0;
  }
};

/// One number that a function writes behind the handle, if it does.
template <class Number = unsigned>
void add_number(nlohmann::json& to, const char* key, const nvml& n, const char* function, device_handle gpu) {
  Number value{};
  if (n.ask(function, gpu, &value)) to[key] = value;
}

nlohmann::json holders_of(const nvml& n, device_handle gpu) {
  nlohmann::json list = nlohmann::json::array();
  int (*ask)(device_handle, unsigned*, process_info*) = nullptr;
  if (!n.library.find("nvmlDeviceGetComputeRunningProcesses_v3", ask)) return list;
  unsigned count = 0;
  if (ask(gpu, &count, nullptr) != insufficient_size) return list;
  std::vector<process_info> processes(count + 16);  // more may have come meanwhile
  count = static_cast<unsigned>(processes.size());
  if (ask(gpu, &count, processes.data()) != 0) return list;
  for (unsigned i = 0; i < count; ++i) {
    const auto& p = processes[i];
    list.push_back({{"pid", p.pid}, {"bytes", p.used_bytes == not_available ? 0 : p.used_bytes}});
  }
  return list;
}

nlohmann::json facts_of(const nvml& n, device_handle gpu) {
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

}  // namespace

int ask_nvml(const std::string& root) {
  const driver_library library("libnvidia-ml.so.1", root);
  if (!library) return 0;
  const nvml n{library};
  begin_step("nvmlInit");
  int (*init)() = nullptr;
  if (!library.find("nvmlInit_v2", init)) {
    tell({{"load_error", "it has no nvmlInit_v2"}});
    return 0;
  }
  const int code = init();
  const char* (*error_text)(int) = nullptr;
  const char* said = library.find("nvmlErrorString", error_text) ? error_text(code) : nullptr;
  tell({{"init_code", code}, {"init_text", said != nullptr ? said : ""}});
  if (code != 0) return 0;
  begin_step("asking for the GPUs' state");
  unsigned count = 0;
  n.ask("nvmlDeviceGetCount_v2", &count);
  nlohmann::json devices = nlohmann::json::array();
  for (unsigned i = 0; i < count; ++i) {
    device_handle gpu = nullptr;
    if (n.ask("nvmlDeviceGetHandleByIndex_v2", i, &gpu)) devices.push_back(facts_of(n, gpu));
  }
  tell({{"devices", devices}});
  return 0;
}

}  // namespace penstock::probe
