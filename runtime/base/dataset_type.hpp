// Facts about each dataset type: how it is spelled (in config files, fingerprints, descriptions and
// messages), and which keys apply to it.
#pragma once

#include <penstock/config.hpp>

#include <string>
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
  bool available = true;  ///< false: the name is reserved, but the dataset is not implemented yet
  path_need path = path_need::required;
  bool images = false;  ///< has image tensors, or may have them
};

constexpr dataset_type_facts facts_of(dataset_type type) noexcept {
  switch (type) {
    case dataset_type::image_folder: return {.images = true};
    case dataset_type::tar: return {.images = true};
    case dataset_type::npy: return {};
    case dataset_type::raw: return {};
    case dataset_type::tokens: return {.available = false};
    case dataset_type::synthetic: return {.path = path_need::none};
    case dataset_type::custom: return {.path = path_need::optional, .images = true};
  }
  return {.available = false};
}

/// In the order of the enumerators.
inline std::vector<dataset_type> all_dataset_types() {
  std::vector<dataset_type> all;
  for (unsigned i = 0; !name_of(static_cast<dataset_type>(i)).empty(); ++i)
    all.push_back(static_cast<dataset_type>(i));
  return all;
}

/// "image-folder, npy, raw, synthetic and custom".
inline std::string available_dataset_types() {
  std::vector<std::string_view> names;
  for (const dataset_type type : all_dataset_types())
    if (facts_of(type).available) names.push_back(name_of(type));
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list.append(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ").append(names[i]);
  return list;
}

}  // namespace penstock
