#include "tools/penstock/launch/launch_plan.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace penstock::cli {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string names_of(const std::vector<launch_gpu>& gpus) {
  if (gpus.empty()) return "this program can see no GPU on this machine";
  std::string all = "available: ";
  for (const launch_gpu& gpu : gpus)
    all += fmt::format("{}{} ({})", gpu.ordinal == gpus[0].ordinal ? "" : ", ", gpu.ordinal, gpu.name);
  return all;
}

void share(const std::vector<int>& cores, const std::vector<rank_place*>& ranks) {
  const std::size_t each = cores.size() / ranks.size();
  if (each == 0) return;
  const std::size_t more = cores.size() % ranks.size();  // this many ranks get an additional core
  std::size_t next = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::size_t count = each + (r < more ? 1 : 0);
    for (std::size_t i = 0; i < count; ++i) ranks[r]->cores.push_back(cores[next++]);
  }
}

void share_cores(std::vector<rank_place>& places, const std::vector<int>& allowed) {
  if (places.size() < 2) return;
  std::map<std::vector<int>, std::vector<rank_place*>> by_cores;
  for (rank_place& place : places) {
    std::vector<int> near;
    for (const int core : allowed) {
      if (place.gpu && std::ranges::find(place.gpu->cores, core) != place.gpu->cores.end())
        near.push_back(core);
    }
    by_cores[near.empty() ? allowed : near].push_back(&place);
  }
  // An unbound rank would also run on cores that are reserved for other ranks.
  if (by_cores.size() > 1 && by_cores.contains(allowed)) {
    std::vector<rank_place*> all;
    for (rank_place& place : places) all.push_back(&place);
    return share(allowed, all);
  }
  for (const auto& [cores, ranks] : by_cores) share(cores, ranks);
}

}  // namespace

result<gpu_choice> parse_gpu_choice(std::string_view text) {
  gpu_choice made;
  if (text == "all") return made;
  if (text.starts_with("host:")) {
    const auto ranks = whole_number<std::uint32_t>(text.substr(5));
    if (!ranks || *ranks < 1 || *ranks > launch_ranks_max)
      return refuse(errc::usage, "--gpus host:N: N must be a number of ranks, 1 to {}, not '{}'",
                    launch_ranks_max, printable(text.substr(5)));
    made.which = gpu_choice::kind::host;
    made.host_ranks = *ranks;
    return made;
  }
  made.which = gpu_choice::kind::some;
  for (const std::string_view part : split(text, ',')) {
    const auto ordinal = whole_number<std::uint32_t>(part);
    if (!ordinal)
      return refuse(errc::usage, "--gpus must be \"all\", GPU numbers such as 0,2,3, or host:N, not '{}'",
                    printable(text));
    if (std::ranges::find(made.ordinals, *ordinal) != made.ordinals.end())
      return refuse(errc::usage, "--gpus names GPU {} twice: each rank needs its own GPU", *ordinal);
    made.ordinals.push_back(*ordinal);
  }
  return made;
}

result<std::vector<rank_place>> plan_places(const gpu_choice& choice, const std::vector<launch_gpu>& gpus,
                                            const std::vector<int>& allowed) {
  std::vector<rank_place> places;
  if (choice.which == gpu_choice::kind::host) places.resize(choice.host_ranks);
  if (choice.which == gpu_choice::kind::all) {
    if (gpus.empty())
      return refuse(errc::usage,
                    "--gpus all: there is no GPU that this program can see; use --gpus host:N for N ranks "
                    "without a GPU, or find the cause with penstock doctor");
    for (const launch_gpu& gpu : gpus) places.push_back({gpu, {}});
  }
  for (const std::uint32_t ordinal : choice.ordinals) {
    const auto gpu = std::ranges::find(gpus, ordinal, &launch_gpu::ordinal);
    if (gpu == gpus.end())
      return refuse(errc::usage, "--gpus: there is no GPU {}; {}", ordinal, names_of(gpus));
    places.push_back({*gpu, {}});
  }
  share_cores(places, allowed);
  return places;
}

std::vector<std::string> rank_environment(std::vector<std::string> base, const launch_names& names,
                                          const std::vector<rank_place>& places, std::uint32_t rank) {
  std::string visible;
  for (const rank_place& place : places) {
    if (place.gpu) visible += (visible.empty() ? "" : ",") + place.gpu->uuid;
  }
  const std::vector<std::pair<std::string, std::string>> own{
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(places.size())},
      {"LOCAL_WORLD_SIZE", std::to_string(places.size())},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"MASTER_ADDR", names.master_addr},
      {"MASTER_PORT", std::to_string(names.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(names.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(names.restarts_max)},
      {"TORCHELASTIC_RUN_ID", names.group},
      {"PENSTOCK_GROUP", names.group},
      {"PENSTOCK_GROUP_ADDR", names.group_address},
      {"PENSTOCK_GROUP_SECRET", names.group_secret},
      {"PENSTOCK_GROUP_STARTS", std::to_string(names.starts)},
      {"CUDA_VISIBLE_DEVICES", visible}};
  for (const auto& [name, value] : own) {
    std::erase_if(base,
                  [&name = name](const std::string& variable) { return variable.starts_with(name + "="); });
    base.push_back(name + "=" + value);
  }
  return base;
}

}  // namespace penstock::cli
