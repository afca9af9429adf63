#include "runtime/dataset/mixture/mixture.hpp"

#include "runtime/base/layout.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/order/mixture_order.hpp"
#include "runtime/dataset/order/mixture_shares.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace penstock {
namespace {

constexpr std::string_view source_tensor = "source";

std::string text_of(const tensor_spec& t) {
  return fmt::format("{} {} [{}]", t.name, name_of(t.type), fmt::join(t.shape, ", "));
}

std::string text_of(std::span<const tensor_spec> tensors) {
  std::vector<std::string> all;
  for (const tensor_spec& t : tensors) all.push_back(text_of(t));
  return shortened(fmt::format("{}", fmt::join(all, ", ")), 200);
}

/// Returns the larger tensor if the two differ only in the maximum number of entries per sample.
std::optional<tensor_spec> common(const tensor_spec& a, tensor_spec b, bool tokens) {
  // Token datasets fill all entries of doc_lengths, however many there are.
  const bool any_length = a.length != length_rule::exact || (tokens && a.name == "doc_lengths");
  if (any_length && !a.shape.empty() && !b.shape.empty()) b.shape[0] = std::max(a.shape[0], b.shape[0]);
  tensor_spec wide = a;
  if (any_length && !a.shape.empty()) wide.shape[0] = b.shape.empty() ? a.shape[0] : b.shape[0];
  if (wide != b) return std::nullopt;
  return wide;
}

std::string rounded_notice(const config& mixture, std::uint64_t epoch, const mixture_shares& shares) {
  std::vector<std::string> all;
  for (std::size_t d = 0; d < shares.parts.size(); ++d)
    all.push_back(fmt::format("{} {}/{}", mixture.datasets[d].name, shares.parts[d], shares.sum));
  return fmt::format(
      "the weights of [[datasets]] have no common denominator of at most {}: from epoch {} on, they are "
      "rounded to {}",
      shares_sum_max, epoch, shortened(fmt::format("{}", fmt::join(all, ", ")), 1000));
}

}  // namespace

config settings_of_part(const config& mixture, std::size_t which) {
  config part = mixture;
  part.datasets.clear();
  const mixed_dataset_config& one = mixture.datasets[which];
  part.dataset = one.dataset;
  part.sampler.epoch_samples = 0;  // the mixture decides how many samples it takes
  part.sampler.weights = one.sample_weights;
  part.sampler.subset = one.subset;
  if (one.sampler) {
    part.sampler.kind = *one.sampler;
    if (*one.sampler == sampler_kind::shuffle) part.sampler.shuffle = true;
  }
  return part;
}

result<dataset_description> describe_mixture(std::span<const mixed_dataset_config> datasets,
                                             std::span<const dataset_description> parts) {
  dataset_description all{"mixture", 0, parts.front().tensors, {}};
  fingerprint_hash hash("mixture");
  for (std::size_t d = 0; d < parts.size(); ++d) {
    const dataset_description& part = parts[d];
    const std::string& name = datasets[d].name;
    if (part.samples == 0)
      return refuse(errc::dataset, "the dataset '{}' of the mixture has no samples", name);
    const bool tokens = part.type == "tokens" && parts.front().type == "tokens";
    bool same = part.tensors.size() == all.tensors.size();
    for (std::size_t t = 0; same && t < all.tensors.size(); ++t) {
      const auto both = common(all.tensors[t], part.tensors[t], tokens);
      same = both.has_value();
      if (both) all.tensors[t] = *both;
    }
    if (!same) {
      return refuse(
          errc::dataset,
          "the datasets '{}' and '{}' cannot be mixed: their tensors must have the same names, element types "
          "and shapes, but '{}' has {}, and '{}' has {}",
          datasets.front().name, name, datasets.front().name, text_of(parts.front().tensors), name,
          text_of(part.tensors));
    }
    if (std::ranges::find(part.tensors, source_tensor, &tensor_spec::name) != part.tensors.end()) {
      return refuse(errc::dataset,
                    "the dataset '{}' has a tensor '{}', but a mixture adds a tensor of that name: give it "
                    "another name",
                    name, source_tensor);
    }
    all.samples += part.samples;
    hash.add_text(name);
    hash.add_text(part.fingerprint);
  }
  all.tensors.push_back({std::string(source_tensor), dtype::int32, {}});
  all.fingerprint = hash.hex();
  return all;
}

result<sampling> sampling_of_mixture(const config& mixture, std::span<const dataset_description> parts,
                                     std::span<const sampling> orders) {
  std::vector<mixed_order> datasets;
  fingerprint_hash hash("mixture order");
  for (std::size_t d = 0; d < parts.size(); ++d) {
    const mixed_dataset_config& one = mixture.datasets[d];
    fingerprint_hash key("dataset of a mixture");
    key.add_text(one.name);
    const std::string digits = key.hex();
    std::uint64_t number = 0;
    std::from_chars(digits.data(), digits.data() + 16, number, 16);
    const bool shuffled = is_shuffled(settings_of_part(mixture, d).sampler);
    datasets.push_back({parts[d].samples, orders[d].order, shuffled, number, one.weight});
    hash.add_text(orders[d].identity);
    hash.add_number(shuffled ? 1 : 0);
  }
  auto order = mixture_order(datasets, mixture.sampler.epoch_samples);
  if (!order) return tl::unexpected(std::move(order.error()));
  sampling made{std::move(*order), {}, {}};
  for (const sampling& one : orders)
    made.notices.insert(made.notices.end(), one.notices.begin(), one.notices.end());
  std::size_t changes = 1;
  for (const mixed_order& one : datasets) changes = std::max(changes, one.weights.size());
  for (std::size_t epoch = 0; epoch < changes; ++epoch) {
    const mixture_shares shares = shares_of(weights_in(datasets, epoch));
    for (const std::uint32_t part : shares.parts) hash.add_number(part);
    if (!shares.exact && (epoch == 0 || shares != shares_of(weights_in(datasets, epoch - 1))))
      made.notices.push_back(rounded_notice(mixture, epoch, shares));
  }
  made.identity = fmt::format("mixture {} {}", hash.hex().substr(0, 16), mixture.sampler.epoch_samples);
  return made;
}

std::string name_in_mixture(const std::string& dataset, const std::string& sample) {
  return fmt::format("{}:{}", dataset, sample);
}

}  // namespace penstock
