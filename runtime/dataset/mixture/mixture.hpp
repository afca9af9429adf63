// A mixture ([[datasets]]) makes one stream of several datasets. This is the session's part, before any worker exists:
// what the mixture consists of, and its order. Used by factory.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/sampling.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// The settings of a config in which dataset `which` is the only one.
config settings_of_part(const config& mixture, std::size_t which);

/// Samples are numbered dataset after dataset. The tensors are those of the datasets; where datasets differ only in a
/// tensor's maximum length, the largest counts. The mixture adds `source`: int32, the number of the row's dataset,
/// counted from 0. Refuses (errc::dataset) two datasets whose tensors differ, naming both, and a dataset without
/// samples or with a tensor `source`.
result<dataset_description> describe_mixture(std::span<const mixed_dataset_config> datasets,
                                             std::span<const dataset_description> parts);

/// Combines the orders of the datasets into the order of the mixture. A notice says which weights were rounded. Refuses
/// what mixture_order refuses.
result<sampling> sampling_of_mixture(const config& mixture, std::span<const dataset_description> parts,
                                     std::span<const sampling> orders);

/// Prefixes the names of a dataset's samples with the dataset's name: "web:...".
std::string name_in_mixture(const std::string& dataset, const std::string& sample);

}  // namespace penstock
