// The values that other keys need for a key to have an effect.
#include "runtime/base/dataset_type.hpp"
#include "runtime/config/key_table.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::config_file {
namespace {

constexpr std::string_view type_key = "dataset.type";
constexpr std::string_view augment_key = "image.augment";
constexpr std::string_view kind_key = "sampler.kind";
constexpr std::string_view dtype_key = "gpu.dtype";
constexpr std::string_view order_key = "scheduler.order";

template <class Enum>
struct condition {
  std::string_view key;
  std::vector<Enum> wanted;

  [[nodiscard]] std::string text() const {
    std::vector<std::string_view> names;
    for (const Enum value : wanted) names.push_back(spelling(value));
    std::vector<std::string_view> others = spellings<Enum>();
    std::erase_if(others, [&](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    });
    // "All but one" is shorter than a list of all the others.
    return names.size() > 3 && others.size() == 1 ? fmt::format("anything but \"{}\"", others[0])
                                                  : quoted_list(names);
  }
  [[nodiscard]] bool holds(Enum value) const {
    return std::find(wanted.begin(), wanted.end(), value) != wanted.end();
  }
};

condition<dataset_type> types_that(bool (*wanted)(const dataset_type_facts&)) {
  condition<dataset_type> made{type_key, {}};
  for (const dataset_type type : all_dataset_types())
    if (wanted(facts_of(type))) made.wanted.push_back(type);
  return made;
}

condition<dataset_type> wanted_types(used_with use) {
  using enum dataset_type;
  switch (use) {
    case used_with::always: break;
    case used_with::for_stored:
      return types_that([](const dataset_type_facts& facts) { return facts.path != path_need::none; });
    case used_with::for_synthetic: return {type_key, {synthetic}};
    case used_with::for_raw_or_synthetic: return {type_key, {raw, synthetic}};
    case used_with::for_typed: return {type_key, {raw, tokens, synthetic}};
    case used_with::for_tokens: return {type_key, {tokens}};
    case used_with::for_custom: return {type_key, {custom}};
    case used_with::for_shuffle_or_subset:
    case used_with::for_weighted:
    case used_with::for_weighted_or_balanced:
    case used_with::for_subset:
    case used_with::for_window:
    case used_with::for_relaxed: break;
    case used_with::for_window_of_shards:
      return {type_key, {tar}};
    case used_with::for_objects: return {type_key, {image_folder, tar, npy, raw, tokens}};
    case used_with::for_members: return {type_key, {tar, npy}};
    case used_with::for_image_folder: return {type_key, {image_folder}};
    case used_with::for_images:
    case used_with::for_random_resized_crop:
    case used_with::for_centre_crop:
    case used_with::for_float_images:
      return types_that([](const dataset_type_facts& facts) { return facts.images; });
  }
  return {type_key, {}};
}

condition<augment_kind> wanted_augments(used_with use) {
  if (use == used_with::for_random_resized_crop) return {augment_key, {augment_kind::random_resized_crop}};
  if (use == used_with::for_centre_crop) return {augment_key, {augment_kind::centre_crop}};
  return {augment_key, {}};
}

condition<dtype> wanted_dtypes(used_with use) {
  if (use == used_with::for_float_images)
    return {dtype_key, {dtype::float16, dtype::bfloat16, dtype::float32}};
  return {dtype_key, {}};
}

condition<sampler_kind> wanted_kinds(used_with use) {
  using enum sampler_kind;
  switch (use) {
    case used_with::for_shuffle_or_subset: return {kind_key, {shuffle, subset}};
    case used_with::for_weighted: return {kind_key, {weighted}};
    case used_with::for_weighted_or_balanced: return {kind_key, {weighted, balanced}};
    case used_with::for_subset: return {kind_key, {subset}};
    case used_with::for_window:
    case used_with::for_window_of_shards: return {kind_key, {window}};
    default: return {kind_key, {}};
  }
}

condition<order_rule> wanted_orders(used_with use) {
  if (use == used_with::for_relaxed) return {order_key, {order_rule::relaxed}};
  return {order_key, {}};
}

}  // namespace

std::optional<unused_because> unused(used_with use, const penstock::config& values) {
  const auto check = [](const auto& wanted, auto value) -> std::optional<unused_because> {
    if (wanted.wanted.empty() || wanted.holds(value)) return std::nullopt;
    return unused_because{wanted.key, wanted.text()};
  };
  const auto kinds = wanted_kinds(use);
  if (!values.datasets.empty()) {
    // Any dataset of the mixture may use the key.
    const auto wanted = wanted_types(use);
    const auto uses = [&](const mixed_dataset_config& one) { return wanted.wanted.empty() || wanted.holds(one.dataset.type); };
    if (!wanted.wanted.empty() && std::ranges::none_of(values.datasets, uses))
      return unused_because{wanted.key, wanted.text()};
    if (use == used_with::for_weighted_or_balanced) return std::nullopt;  // for a mixture, the key sets the length of epochs
    // A dataset with its own sampler has its own weights and subset, but the window of [sampler].
    const auto has_kind = [&](const mixed_dataset_config& one) { return one.sampler && kinds.holds(*one.sampler) && uses(one); };
    if (use != used_with::for_weighted && use != used_with::for_subset && std::ranges::any_of(values.datasets, has_kind)) return std::nullopt;
  } else if (auto no = check(wanted_types(use), values.dataset.type)) {
    return no;
  }
  if (auto no = check(wanted_augments(use), values.image.augment)) return no;
  if (auto no = check(kinds, values.sampler.kind)) return no;
  if (auto no = check(wanted_orders(use), values.scheduler.order)) return no;
  return check(wanted_dtypes(use), values.gpu.dtype);
}

std::vector<std::pair<std::string_view, std::string>> conditions_of(used_with use) {
  std::vector<std::pair<std::string_view, std::string>> all;
  const auto add = [&all](const auto& wanted) {
    if (!wanted.wanted.empty()) all.emplace_back(wanted.key, wanted.text());
  };
  add(wanted_types(use));
  add(wanted_augments(use));
  add(wanted_kinds(use));
  add(wanted_orders(use));
  add(wanted_dtypes(use));
  return all;
}

}  // namespace penstock::config_file
