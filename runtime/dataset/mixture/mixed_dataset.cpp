#include "runtime/dataset/mixture/mixed_dataset.hpp"

#include "runtime/base/check.hpp"
#include "runtime/dataset/mixture/mixture.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

mixed_dataset::mixed_dataset(std::vector<part> parts, dataset_description description)
    : parts_(std::move(parts)), description_(std::move(description)) {
  std::uint64_t end = 0;
  for (const part& one : parts_) ends_.push_back(end += one.samples);
}

mixed_dataset::place mixed_dataset::place_of(std::uint64_t index) const {
  PENSTOCK_CHECK(index < ends_.back(), "sample {} of {}", index, ends_.back());
  const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  return {at, index - (ends_[at] - parts_[at].samples)};
}

void mixed_dataset::setup(const worker_context& context) {
  for (const part& one : parts_) one.dataset->setup(context);
}

void mixed_dataset::expect(std::span<const std::uint64_t> samples) {
  std::vector<std::vector<std::uint64_t>> of_parts(parts_.size());
  for (const std::uint64_t sample : samples) {
    const place at = place_of(sample);
    of_parts[at.part].push_back(at.sample);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (!of_parts[i].empty()) parts_[i].dataset->expect(of_parts[i]);
}

void mixed_dataset::load(const sample_request& request, const sample_slot& slot) {
  const place at = place_of(request.index);
  parts_[at.part].dataset->load({at.sample, request.epoch, request.attempt, request.random}, slot);
  slot.as<std::int32_t>(description_.tensors.size() - 1)[0] = static_cast<std::int32_t>(at.part);
}

std::string mixed_dataset::name_of(std::uint64_t index) const {
  const place at = place_of(index);
  const part& one = parts_[at.part];
  return name_in_mixture(one.name, one.dataset->name_of(at.sample));
}

}  // namespace penstock
