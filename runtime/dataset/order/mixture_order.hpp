// The order of a mixture ([[datasets]]): which dataset feeds each position, and which of its samples. Used by plan;
// made by runtime/dataset/mixture/mixture.hpp.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/order/sample_order.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

/// One dataset of a mixture. It runs through its own epochs, one after the other, across all epochs of the mixture.
struct mixed_order {
  std::uint64_t samples = 0;                  ///< samples of the dataset, at least 1
  std::shared_ptr<const sample_order> order;  ///< null: all samples, as `shuffle` says
  bool shuffle = true;
  std::uint64_t key = 0;  ///< seed of its random draws, derived from the dataset's name and not from its place in the list
  std::vector<double> weights;  ///< for epoch 0, 1, ..; the last one applies to all later epochs
};

inline constexpr std::size_t mixed_datasets_max = 256;
inline constexpr std::uint64_t mixed_epoch_max = std::uint64_t{1} << 40U;
/// The most entries of all patterns together. Each takes 6 bytes.
inline constexpr std::uint64_t pattern_entries_max = std::uint64_t{1} << 24U;

/// Samples are numbered dataset after dataset, in the order of the list. O(1) for each position. Memory: 6 bytes for
/// each position of a period (mixture_shares.hpp), shared by all epochs with the same weights. In each epoch, the
/// weights must meet the requirements of shares_of. Refuses (errc::config) more than mixed_datasets_max datasets, an
/// epoch of 0 or more than mixed_epoch_max positions, and patterns that need more than pattern_entries_max entries.
result<std::shared_ptr<const sample_order>> mixture_order(std::vector<mixed_order> datasets,
                                                          std::uint64_t positions);

/// The weights of all datasets in one epoch.
std::vector<double> weights_in(std::span<const mixed_order> datasets, std::uint64_t epoch);

}  // namespace penstock
