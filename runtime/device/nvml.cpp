#include "runtime/device/nvml.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <fstream>

namespace penstock::device {
namespace {

// NVML's structures and constants, copied from its stable interface, because only the toolkit has the
// header.
struct process_info {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr int success = 0;
constexpr int insufficient_size = 7;
constexpr unsigned long long not_available = ~0ULL;

}  // namespace

nvml::~nvml() {
  if (started_) ask("nvmlShutdown");
}

result<void> nvml::start() {
  if (!library_) return refuse(errc::device_unavailable, "{}", library_.trouble());
  int (*init)() = nullptr;
  if (!library_.find("nvmlInit_v2", init)) return refuse(errc::device_unavailable, "it has no nvmlInit_v2");
  const int code = init();
  started_ = code == success;
  if (started_) return {};
  const char* (*error_text)(int) = nullptr;
  const char* said = library_.find("nvmlErrorString", error_text) ? error_text(code) : nullptr;
  return tl::unexpected(failure{errc::device_unavailable, said != nullptr ? said : "", code});
}

unsigned nvml::count() const {
  unsigned number = 0;
  return ask("nvmlDeviceGetCount_v2", &number) ? number : 0;
}

std::optional<nvml::gpu> nvml::by_index(unsigned index) const {
  gpu found = nullptr;
  return ask("nvmlDeviceGetHandleByIndex_v2", index, &found) ? std::optional(found) : std::nullopt;
}

std::optional<nvml::gpu> nvml::by_uuid(const std::string& uuid) const {
  gpu found = nullptr;
  return ask("nvmlDeviceGetHandleByUUID", uuid.c_str(), &found) ? std::optional(found) : std::nullopt;
}

std::optional<std::vector<gpu_process>> nvml::processes_on(gpu which) const {
  int (*ask_for)(gpu, unsigned*, process_info*) = nullptr;
  if (!library_.find("nvmlDeviceGetComputeRunningProcesses_v3", ask_for)) return std::nullopt;
  unsigned count = 0;
  const int status = ask_for(which, &count, nullptr);
  if (status == success) return std::vector<gpu_process>();
  if (status != insufficient_size) return std::nullopt;
  constexpr unsigned new_meanwhile = 16;
  std::vector<process_info> all(count + new_meanwhile);
  count = static_cast<unsigned>(all.size());
  if (ask_for(which, &count, all.data()) != success) return std::nullopt;
  std::vector<gpu_process> processes;
  for (unsigned i = 0; i < count; ++i)
    processes.push_back({all[i].pid, all[i].used_bytes == not_available ? 0 : all[i].used_bytes});
  return processes;
}

std::optional<std::vector<gpu_process>> processes_on_gpu(const std::string& uuid) {
  nvml library{driver_library(nvml_library_name)};
  if (!library.start()) return std::nullopt;
  const auto which = library.by_uuid(uuid);
  return which ? library.processes_on(*which) : std::nullopt;
}

std::string in_words(const std::vector<gpu_process>& processes) {
  std::string words;
  for (const gpu_process& p : processes) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", p.pid)), name);
    words += fmt::format("{}pid {} ({}{}{})", words.empty() ? "" : ", ", p.pid, printable(name),
                         name.empty() ? "" : ", ", bytes_for_people(p.bytes));
  }
  return words;
}

}  // namespace penstock::device
