// The row about connections between GPUs: what NVML reports about links, and CUDA about peer access.
#include "tools/penstock/doctor/row_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace penstock::doctor {
namespace {

/// Spelled as in `nvidia-smi topo -m`.
std::string way_of(const link_facts* link) {
  if (link == nullptr) return "unknown";
  if (link->nvlinks > 0) return fmt::format("NV{}", link->nvlinks);
  if (!link->ancestor) return "unknown";
  if (*link->ancestor < 10) return "one board";
  if (*link->ancestor < 20) return "PIX";
  if (*link->ancestor < 30) return "PXB";
  if (*link->ancestor < 40) return "PHB";
  return *link->ancestor < 50 ? "NODE" : "SYS";
}

std::string explained(const std::string& way) {
  static const std::map<std::string, std::string> words{{"PIX", "one PCIe switch"},
                                                        {"PXB", "several PCIe switches"},
                                                        {"PHB", "a PCIe host bridge"},
                                                        {"NODE", "host bridges of one NUMA node"},
                                                        {"SYS", "the link between NUMA nodes"}};
  if (way.starts_with("NV")) return way + " (NVLink)";
  const auto found = words.find(way);
  return found == words.end() ? way : fmt::format("{} ({})", way, found->second);
}

/// NVML's index of a GPU; CUDA_VISIBLE_DEVICES may number GPUs differently.
std::optional<std::size_t> place_of(const nvml_facts& n, const cuda_device_facts& gpu) {
  const auto found = std::ranges::find(n.devices, gpu.uuid, &nvml_device_facts::uuid);
  if (gpu.uuid.empty() || found == n.devices.end()) return std::nullopt;
  return static_cast<std::size_t>(found - n.devices.begin());
}

const link_facts* link_between(const facts& f, const peer_facts& pair) {
  const auto& gpus = f.gpu.cuda.devices;
  const auto at = [&](int ordinal) {
    const auto gpu = std::ranges::find(gpus, ordinal, &cuda_device_facts::ordinal);
    return gpu == gpus.end() ? std::nullopt : place_of(f.gpu.nvml, *gpu);
  };
  const auto a = at(pair.a);
  const auto b = at(pair.b);
  if (!a || !b) return nullptr;
  const auto found = std::ranges::find_if(f.gpu.nvml.links, [&](const link_facts& l) {
    return (l.a == *a && l.b == *b) || (l.a == *b && l.b == *a);
  });
  return found == f.gpu.nvml.links.end() ? nullptr : &*found;
}

std::string name_of(const peer_facts& pair) {
  return fmt::format("{}-{}", pair.a, pair.b);
}

/// "all" instead of a list of all pairs.
std::string list_of(const std::vector<std::string>& pairs, std::size_t of_all) {
  return pairs.size() == of_all ? "all" : fmt::format("{}", fmt::join(pairs, ", "));
}

}  // namespace

finding check_links(const facts& f) {
  if (auto skip = not_asked(f)) return *skip;
  const cuda_facts& c = f.gpu.cuda;
  if (c.devices.empty()) return skipped("no GPU was found (see gpu.cuinit)");
  if (c.devices.size() == 1) return {status::ok, "this process sees one GPU"};
  if (c.peers.empty()) return skipped("this libcuda does not report which GPUs reach each other");
  std::map<std::string, std::vector<std::string>> ways;
  std::vector<std::string> apart;
  for (const peer_facts& pair : c.peers) {
    ways[way_of(link_between(f, pair))].push_back(name_of(pair));
    if (!pair.access) apart.push_back(name_of(pair));
  }
  std::string observed = counted(c.devices.size(), "GPU");
  for (const auto& [way, pairs] : ways)
    observed += fmt::format("; {}: {}", explained(way), list_of(pairs, c.peers.size()));
  if (!apart.empty()) {
    observed += fmt::format("; no peer access: {}", list_of(apart, c.peers.size()));
    return {f.group.wants_nccl ? status::warn : status::info, observed};
  }
  observed += "; peer access: all";
  if (ways.size() == 1) return {status::ok, observed};
  return {status::info, observed, "",
          "none needed; a collective operation over all GPUs is as fast as the slowest link, so a group of "
          "only the GPUs with fast links (launch --gpus) is faster"};
}

finding check_nvjpeg(const facts& f) {
  if (const auto no = not_asked(f)) return *no;
  if (f.gpu.decoder == decoder_rule::cpu) return skipped("[image] decoder does not ask for nvJPEG");
  if (f.gpu.nvjpeg_trouble.empty()) return {status::ok, f.gpu.nvjpeg};
  return {f.gpu.decoder == decoder_rule::gpu ? status::fail : status::warn, f.gpu.nvjpeg_trouble};
}

}  // namespace penstock::doctor
