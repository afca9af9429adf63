// The parts of penstock::Dataset that datasets need not override.
#include "runtime/base/sample_name.hpp"

#include <penstock/dataset.hpp>
#include <penstock/error.hpp>

#include <fmt/core.h>

namespace penstock {

namespace detail {

void require_tensor(std::size_t tensor, std::size_t tensors) {
  if (tensor < tensors) return;
  throw error({errc::usage,
               fmt::format("there is no tensor {}: describe() declares {}, counted from 0", tensor, tensors),
               0});
}

}  // namespace detail

Dataset::~Dataset() = default;

void Dataset::setup(const worker_context&) {}

void Dataset::expect(std::span<const std::uint64_t>) {}

void Dataset::collate(const batch_slot&, random_source&) {}

void sample_slot::set_length(std::size_t tensor, std::uint64_t entries) const {
  if (tensor >= lengths_.size() || lengths_[tensor].max == 0) {
    throw std::out_of_range(
        fmt::format("a length was set for tensor {}, which has no lengths according to describe()", tensor));
  }
  if (entries > lengths_[tensor].max) {
    throw std::out_of_range(
        fmt::format("it has {} entries, but describe() declares at most {}", entries, lengths_[tensor].max));
  }
  lengths_[tensor].entries = entries;
}

std::string Dataset::name_of(std::uint64_t index) const {
  return default_sample_name(index);
}

transient_error::~transient_error() = default;

}  // namespace penstock
