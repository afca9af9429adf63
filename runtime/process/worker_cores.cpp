#include "runtime/process/worker_cores.hpp"

#include "runtime/base/file_text.hpp"
#include "runtime/base/number.hpp"
#include "runtime/process/cores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace penstock::process {
namespace {

struct known_gpu {
  std::string pci;
  std::string model;
  std::string uuid;
};

/// "Model: 		 NVIDIA H100" -> "NVIDIA H100"
std::string field(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return {};
  text = text.substr(at + name.size(), text.find('\n', at) - at - name.size());
  const std::size_t begin = text.find_first_not_of(": \t");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t") + 1 - begin));
}

/// The GPUs in the order of their addresses.
std::vector<known_gpu> gpus_below(const std::filesystem::path& root) {
  std::vector<known_gpu> found;
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator(root / "proc/driver/nvidia/gpus", status)) {
    const std::string text = text_of_file(entry.path() / "information");
    found.push_back({entry.path().filename().string(), field(text, "Model"), field(text, "GPU UUID")});
  }
  std::ranges::sort(found, {}, &known_gpu::pci);
  return found;
}

/// Whether all GPUs are of one model. CUDA numbers GPUs by speed, and equally fast ones by address.
bool numbers_follow_addresses(const std::vector<known_gpu>& gpus) {
  return std::ranges::all_of(gpus, [&](const known_gpu& g) { return g.model == gpus.front().model; });
}

/// The GPUs that an entry of a list may mean. An entry is a number, the beginning of a UUID, or something unknown, which
/// may mean any GPU; "-1" means none.
std::vector<known_gpu> named(std::string_view entry, const std::vector<known_gpu>& gpus) {
  std::vector<known_gpu> found;
  if (const auto number = whole_number<std::size_t>(entry); number && numbers_follow_addresses(gpus)) {
    if (*number < gpus.size()) found.push_back(gpus[*number]);
    return found;
  }
  if (entry.starts_with('-')) return found;
  if (!entry.starts_with("GPU-")) return gpus;
  std::ranges::copy_if(gpus, std::back_inserter(found), [&](const known_gpu& g) { return g.uuid.starts_with(entry); });
  return found;
}

/// The devices that CUDA lists in this process. An entry contains all GPUs that the device may be.
std::vector<std::vector<known_gpu>> visible_gpus(const char* visible, const std::vector<known_gpu>& gpus) {
  std::vector<std::vector<known_gpu>> list;
  if (visible == nullptr) {
    const bool known = numbers_follow_addresses(gpus);
    for (const known_gpu& g : gpus) list.push_back(known ? std::vector{g} : gpus);
    return list;
  }
  std::string_view rest = visible;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    auto candidates = named(rest.substr(0, end), gpus);
    if (candidates.empty()) break;  // CUDA ignores what follows an unknown entry
    list.push_back(std::move(candidates));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return list;
}

std::vector<known_gpu> candidates_of(std::string_view device, const char* visible, const std::vector<known_gpu>& gpus) {
  if (gpus.empty() || device == "host") return {};
  if (device.starts_with("uuid:")) return named(device.substr(5), gpus);
  const auto list = visible_gpus(visible, gpus);
  if (device.starts_with("cuda:")) {
    const auto number = whole_number<std::size_t>(device.substr(5));
    return number && *number < list.size() ? list[*number] : std::vector<known_gpu>{};
  }
  std::vector<known_gpu> any;
  for (const auto& entry : list) any.insert(any.end(), entry.begin(), entry.end());
  return any;
}

bool has_several_nodes(const std::filesystem::path& root) {
  return parse_core_list(text_of_file(root / "sys/devices/system/node/online")).size() > 1;
}

}  // namespace

std::optional<gpu_place> find_gpu_place(const std::string& device, const char* visible, const std::filesystem::path& root) {
  if (!has_several_nodes(root)) return std::nullopt;
  std::optional<int> node;
  for (const known_gpu& gpu : candidates_of(device, visible, gpus_below(root))) {
    const std::string text = text_of_file(root / "sys/bus/pci/devices" / gpu.pci / "numa_node");
    const auto one = whole_number<std::size_t>(std::string_view(text).substr(0, text.find('\n')));  // -1: unknown to the kernel
    if (!one || (node && *node != static_cast<int>(*one))) return std::nullopt;
    node = static_cast<int>(*one);
  }
  if (!node) return std::nullopt;
  return gpu_place{*node, parse_core_list(text_of_file(root / fmt::format("sys/devices/system/node/node{}/cpulist", *node)))};
}

std::vector<int> worker_cores::of(std::uint32_t place) const {
  return listed || place < cores.size() ? cores : std::vector<int>{};
}

result<worker_cores> plan_cores(const core_choice& choice, const std::vector<int>& allowed, const std::optional<gpu_place>& gpu) {
  worker_cores plan;
  const auto may_use = [&](int core) { return std::ranges::find(allowed, core) != allowed.end(); };
  if (!choice.cores.empty()) {
    plan.listed = true;
    for (const std::uint32_t core : choice.cores) {
      if (!may_use(static_cast<int>(core)))
        return refuse(errc::config,
                      "'affinity' in [loader] names core {}, but this process may use only cores {}: name some of these, or write "
                      "affinity = \"none\"",
                      core, core_list(allowed));
      plan.cores.push_back(static_cast<int>(core));
    }
    return plan;
  }
  if (choice.rule == core_rule::anywhere || !gpu) return plan;
  plan.node = gpu->node;
  std::ranges::copy_if(gpu->cores, std::back_inserter(plan.cores), may_use);
  if (plan.cores.size() == allowed.size()) plan.cores.clear();  // nothing to restrict
  return plan;
}

result<worker_cores> plan_cores(const core_choice& choice, const std::string& device) {
  return plan_cores(choice, allowed_cores(), find_gpu_place(device, std::getenv("CUDA_VISIBLE_DEVICES")));
}

}  // namespace penstock::process
