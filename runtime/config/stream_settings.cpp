// Which keys define a stream, for comparing the ranks of a group.
#include "runtime/config/describe.hpp"
#include "runtime/config/key_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace penstock::config_file {
namespace {

constexpr std::array<std::string_view, 3> tables{"dataset", "image", "sampler"};

/// Keys that are compared, although the rest of their table is not.
constexpr std::array<std::string_view, 8> more_keys{
    "loader.on_bad_sample", "gpu.layout",         "gpu.dtype",       "gpu.mean", "gpu.std",
    "group.communicator",   "group.on_lost_rank", "group.lost_after"};

/// Keys that are not compared. Paths differ between hosts, and the fingerprint identifies the data, weights
/// and lists. Each rank loads its own part of the stream, a test may inject a fault into one rank only, and
/// the duration of a sample does not change the stream.
constexpr std::array<std::string_view, 8> not_these{"dataset.path",    "dataset.faults", "dataset.work",
                                                    "dataset.wait",    "sampler.rank",   "sampler.world_size",
                                                    "sampler.weights", "sampler.subset"};

constexpr std::array<std::string_view, 6> not_these_of_a_mixture{"path", "faults",         "work",
                                                                 "wait", "sample_weights", "subset"};

bool is_in(const auto& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> stream_settings(const penstock::config& settings) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const key_info& key : key_table::get().keys()) {
    if (in_array(key) || is_in(not_these, key.path)) continue;
    if (!is_in(tables, key.table) && !is_in(more_keys, key.path)) continue;
    all.emplace_back(key.path, key.value->write(key.locate_in(&settings)));
  }
  for (std::size_t i = 0; i < settings.datasets.size(); ++i) {
    for (const key_info* key : key_table::get().keys_of(datasets_table)) {
      if (is_in(not_these_of_a_mixture, key->name)) continue;
      all.emplace_back(fmt::format("datasets[{}].{}", i, key->name),
                       key->value->write(key->locate_in(&settings.datasets[i])));
    }
  }
  return all;
}

}  // namespace penstock::config_file
