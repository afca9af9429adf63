// Facts about each dataset type: how it is spelled (in config files, fingerprints, descriptions and
// messages), and which keys apply to it.
#pragma once

#include <penstock/config.hpp>

#include <string_view>
#include <vector>

namespace penstock {

/// "image-folder"; empty for a value that is not an enumerator. Has no default case, so that the compiler
/// warns about a missing one.
constexpr std::string_view name_of(dataset_type type) noexcept {
  switch (type) {
    case dataset_type::image_folder: return "image-folder";
    case dataset_type::tar: return "tar";
    case dataset_type::npy: return "npy";
    case dataset_type::raw: return "raw";
    case dataset_type::tokens: return "tokens";
    case dataset_type::synthetic: return "synthetic";
    case dataset_type::custom: return "custom";
  }
  return {};
}

enum class path_need : std::uint8_t { none, optional, required };

struct dataset_type_facts {
  path_need path = path_need::required;
  bool images = false;  ///< has image tensors, or may have them
};

constexpr dataset_type_facts facts_of(dataset_type type) noexcept {
  switch (type) {
    case dataset_type::image_folder: return {.images = true};
    case dataset_type::tar: return {.images = true};
    case dataset_type::npy: return {};
    case dataset_type::raw: return {};
    case dataset_type::tokens: return {};
    case dataset_type::synthetic: return {.path = path_need::none};
    case dataset_type::custom: return {.path = path_need::optional, .images = true};
  }
  return {};
}

/// For a mixture, the type of its first dataset. All have the same tensors.
inline dataset_type type_of(const config& settings) noexcept {
  return settings.datasets.empty() ? settings.dataset.type : settings.datasets.front().dataset.type;
}

/// All types, in the order of the enumerators.
inline std::vector<dataset_type> all_dataset_types() {
  std::vector<dataset_type> all;
  for (unsigned i = 0; !name_of(static_cast<dataset_type>(i)).empty(); ++i)
    all.push_back(static_cast<dataset_type>(i));
  return all;
}

}  // namespace penstock
