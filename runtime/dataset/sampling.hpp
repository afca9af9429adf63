// Makes the order that [sampler] kind selects. Reads the files that the order needs: weights, a list of samples,
// classes. Used by the session once the dataset is known, and by commands that only plan.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/order/sample_order.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <memory>
#include <string>
#include <vector>

namespace penstock {

struct sampling {
  std::shared_ptr<const sample_order> order;  ///< null: all samples once per epoch, shuffled or in sequence
  std::string identity;                       ///< kind, lengths and a hash of the files: at most 60 bytes
  std::vector<std::string> notices;           ///< for the log
};

/// `index_fd`: from prepare_dataset (-1: none); it stays open. Refuses (errc::dataset, or errc::io with errno), naming
/// the file and the values: a file that cannot be read or lacks the form that [sampler] describes, a number of weights
/// that differs from the number of samples, and what the orders refuse.
result<sampling> read_sampling(const config& settings, const dataset_description& dataset, int index_fd);

/// Whether all samples are shuffled: [sampler] shuffle = false is a short form of kind = "sequential".
[[nodiscard]] inline bool is_shuffled(const sampler_config& sampler) noexcept {
  return sampler.shuffle && sampler.kind != sampler_kind::sequential;
}

}  // namespace penstock
