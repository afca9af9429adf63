#include "tools/penstock/jobs/command_environment.hpp"

#include <algorithm>

namespace penstock::cli {
namespace {

constexpr auto gpus = "CUDA_VISIBLE_DEVICES";  // empty in workers (actors/supervisor/worker_processes.cpp)
constexpr auto threads = "OMP_NUM_THREADS";

bool is_default(const config_file::loaded_config& loaded, const std::string& key) {
  return loaded.source_of(key).kind == config_file::provenance_kind::fallback;
}

}  // namespace

std::vector<std::string> give_callers_environment(const config_file::loaded_config& loaded,
                                                  const config_file::environment_list& caller,
                                                  config& settings) {
  if (is_default(loaded, std::string("loader.env.") + threads)) settings.loader.env.erase(threads);
  if (is_default(loaded, "gpu.exclusive")) settings.gpu.exclusive = exclusive_rule::off;
  const auto change = [](const std::string& value) { return std::vector{std::string(gpus) + "=" + value}; };
  if (const auto set = settings.loader.env.find(gpus); set != settings.loader.env.end())
    return change(set->second);
  const auto given = std::ranges::find(caller, gpus, [](const auto& variable) { return variable.first; });
  return given != caller.end() ? change(given->second) : std::vector<std::string>{gpus};
}

}  // namespace penstock::cli
