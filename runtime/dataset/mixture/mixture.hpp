// A mixture, [[datasets]]: several datasets that make one stream. The session's part, before any worker exists: what the
// mixture consists of and in which order. Used by factory.
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

/// The settings as if dataset `which` of the mixture were the only one.
config settings_of_part(const config& mixture, std::size_t which);

/// Samples are numbered dataset after dataset. Tensors are those of all datasets, as large as the largest of those
/// that may be shorter, and `source`: int32, which dataset a row is from, counted from 0. Refuses (errc::dataset),
/// naming both, datasets that differ in their tensors; and one without samples or with a tensor `source`.
result<dataset_description> describe_mixture(std::span<const mixed_dataset_config> datasets,
                                             std::span<const dataset_description> parts);

/// The order of the mixture from those of its datasets. A notice says which weights were rounded. Refuses what
/// mixture_order refuses.
result<sampling> sampling_of_mixture(const config& mixture, std::span<const dataset_description> parts,
                                     std::span<const sampling> orders);

/// "web:" precedes the names of the samples of web.
std::string name_in_mixture(const std::string& dataset, const std::string& sample);

}  // namespace penstock
