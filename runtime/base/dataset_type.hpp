// How a type of dataset is spelled, in config files, fingerprints, descriptions and messages.
#pragma once

#include <penstock/config.hpp>

#include <string_view>

namespace penstock {

/// "image-folder"; empty for a number that is no enumerator. Has no default case, so that the compiler names
/// an enumerator that was forgotten.
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

}  // namespace penstock
