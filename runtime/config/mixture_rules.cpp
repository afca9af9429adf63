#include "runtime/config/mixture_rules.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/config/limits.hpp"
#include "runtime/config/spelling.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace penstock::config_file {
namespace {

constexpr std::size_t datasets_max = 256;
constexpr std::size_t weights_max = 1000;

using found_list = std::vector<contradiction>;

std::string path_of(std::size_t which, std::string_view key) {
  return fmt::format("datasets[{}].{}", which, key);
}

/// "the dataset 'web' of [[datasets]]"; with its number if it has no name.
std::string called(const penstock::config& values, std::size_t which) {
  const std::string& name = values.datasets[which].name;
  return name.empty() ? fmt::format("number {} of [[datasets]]", which + 1)
                      : fmt::format("the dataset '{}' of [[datasets]]", printable(shortened(name, 60)));
}

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

void check_name(const penstock::config& values, std::size_t which, std::map<std::string, std::size_t>& names,
                found_list& found) {
  const std::string& name = values.datasets[which].name;
  if (name.empty()) {
    found.push_back({.key = path_of(which, "name"),
                     .other = "datasets",
                     .message = fmt::format("'name' of {} is missing", called(values, which)),
                     .label = "needs a name",
                     .help = "add name = \"...\": the names of its samples will begin with it",
                     .missing = true});
    return;
  }
  if (!is_session_name(name)) {
    found.push_back({.key = path_of(which, "name"),
                     .message = fmt::format("'{}' in [[datasets]] cannot be the name of a dataset",
                                            printable(shortened(name, 60))),
                     .label = "1 to 64 letters, digits, '.', '_' and '-', not '.' or '-' first"});
  }
  const auto [first, is_new] = names.emplace(name, which);
  if (is_new) return;
  found.push_back(
      {.key = path_of(which, "name"),
       .other = path_of(first->second, "name"),
       .message = fmt::format("two of [[datasets]] have the name '{}'", printable(shortened(name, 60))),
       .label = "names must differ"});
}

/// Returns false if the weights cannot be used.
bool check_weights(const penstock::config& values, std::size_t which, found_list& found) {
  const std::vector<double>& weights = values.datasets[which].weight;
  const auto refuse = [&](std::string message, std::string label) {
    found.push_back(
        {.key = path_of(which, "weight"), .message = std::move(message), .label = std::move(label)});
    return false;
  };
  if (weights.empty())
    return refuse(fmt::format("'weight' of {} is empty", called(values, which)), "needs a number");
  if (weights.size() > weights_max) {
    return refuse(fmt::format("'weight' of {} has {} numbers, which is too many", called(values, which),
                              weights.size()),
                  fmt::format("at most {}", weights_max));
  }
  const auto negative = std::ranges::find_if(weights, [](double weight) { return weight < 0; });
  if (negative != weights.end())
    return refuse(fmt::format("'weight' of {} is negative: {}", called(values, which), *negative),
                  "must be at least 0");
  if (std::ranges::all_of(weights, [](double weight) { return weight == 0; })) {
    return refuse(fmt::format("'weight' of {} is 0: the dataset would never be used", called(values, which)),
                  "must be above 0, or leave the dataset out");
  }
  if (weights.size() > values.sampler.epochs) {
    found.push_back({.key = path_of(which, "weight"),
                     .other = "sampler.epochs",
                     .message = fmt::format("'weight' of {} has numbers for {}, but there {} {}",
                                            called(values, which), counted(weights.size(), "epoch"),
                                            values.sampler.epochs == 1 ? "is" : "are", values.sampler.epochs),
                     .label = "the remaining numbers are not used",
                     .doubtful = true});
  }
  return true;
}

void check_own_sampler(const penstock::config& values, std::size_t which, found_list& found) {
  const mixed_dataset_config& one = values.datasets[which];
  const sampler_kind kind = one.sampler.value_or(values.sampler.kind);
  const auto file = [&](sampler_kind wanted, std::string_view key, const std::string& given,
                        std::string_view what) {
    if (kind == wanted && given.empty()) {
      found.push_back(
          {.key = path_of(which, key),
           .other = one.sampler ? path_of(which, "sampler") : "sampler.kind",
           .message = fmt::format("'{}' of {} is missing: sampler \"{}\" needs {}", key,
                                  called(values, which), spelling(wanted), what),
           .label = "needs a file",
           .help = fmt::format("add {} = \"...\" to it; it is relative to the file that contains it", key),
           .missing = true});
    }
    if (kind != wanted && !given.empty()) {
      found.push_back({.key = path_of(which, key),
                       .message = fmt::format("'{}' of {} has no effect with sampler \"{}\"", key,
                                              called(values, which), spelling(kind)),
                       .label = fmt::format("used only when sampler is \"{}\"", spelling(wanted)),
                       .doubtful = true});
    }
  };
  file(sampler_kind::weighted, "sample_weights", one.sample_weights, "one weight for each sample");
  file(sampler_kind::subset, "subset", one.subset, "a list of samples");
  if (kind == sampler_kind::balanced && one.dataset.type != dataset_type::image_folder && one.dataset.type != dataset_type::tar) {
    found.push_back({.key = path_of(which, "sampler"),
                     .other = path_of(which, "type"),
                     .message = fmt::format("sampler \"balanced\" of {} needs each sample's class "
                                            "before loading it, but a dataset of type \"{}\" cannot provide it",
                                            called(values, which), spelling(one.dataset.type)),
                     .label = "only image-folder and tar can"});
  }
}

/// Requires weights that can be used.
void check_epochs(const penstock::config& values, found_list& found) {
  std::size_t changes = 1;
  for (const mixed_dataset_config& one : values.datasets) changes = std::max(changes, one.weight.size());
  for (std::size_t epoch = 0; epoch < changes; ++epoch) {
    const bool some = std::ranges::any_of(values.datasets, [&](const mixed_dataset_config& one) {
      return one.weight[std::min(epoch, one.weight.size() - 1)] > 0;
    });
    if (some) continue;
    found.push_back({.key = "datasets",
                     .message = fmt::format("all weights of [[datasets]] are 0 in epoch {}", epoch),
                     .label = "no dataset is left"});
    return;
  }
}

}  // namespace

void check_mixture(
    const penstock::config& values,
    const std::function<void(const dataset_config&, std::vector<contradiction>&)>& check_dataset,
    std::vector<contradiction>& found) {
  if (values.dataset != dataset_config()) {
    found.push_back({.key = "datasets",
                     .other = "dataset.type",
                     .message = "[dataset] and [[datasets]] both say where samples come from",
                     .label = "keep one of them",
                     .help = "[[datasets]] is a mixture of several datasets: move [dataset] there, with a "
                             "name and a weight"});
  }
  if (values.datasets.size() > datasets_max) {
    found.push_back({.key = "datasets",
                     .message = fmt::format("[[datasets]] has {}", counted(values.datasets.size(), "table")),
                     .label = fmt::format("a mixture has at most {} datasets", datasets_max)});
    return;
  }
  if (values.datasets.size() == 1) {
    found.push_back({.key = "datasets",
                     .message = "[[datasets]] has only one dataset",
                     .label = "nothing to mix",
                     .help = "a single dataset is a table [dataset]",
                     .doubtful = true});
  }
  if (values.image.decoder != decoder_rule::cpu) {
    found.push_back({.key = "image.decoder",
                     .other = "datasets",
                     .message = fmt::format(
                         "'decoder' in [image] is \"{}\", but workers decode the pictures of a mixture",
                         spelling(values.image.decoder)),
                     .label = "must be \"cpu\"",
                     .help = "leave 'decoder' out"});
  }
  if (values.sampler.epoch_samples == 0) {
    found.push_back(
        {.key = "sampler.epoch_samples",
         .other = "datasets",
         .message = "'epoch_samples' in [sampler] is missing: a mixture has no length of its own",
         .label = "must be the length of an epoch",
         .help = "add epoch_samples = ... to [sampler]: samples of all ranks and datasets together",
         .missing = true});
  }
  std::map<std::string, std::size_t> names;
  bool weights_are_usable = true;
  for (std::size_t which = 0; which < values.datasets.size(); ++which) {
    const dataset_config& dataset = values.datasets[which].dataset;
    check_name(values, which, names, found);
    weights_are_usable = check_weights(values, which, found) && weights_are_usable;
    check_own_sampler(values, which, found);
    if (dataset.type == dataset_type::custom) {
      found.push_back(
          {.key = path_of(which, "type"),
           .message = fmt::format("the type of {} is \"custom\", which cannot be mixed: only its worker "
                                  "program knows how many samples it has",
                                  called(values, which)),
           .label = "cannot be mixed",
           .help = "mix the samples in the worker program, or store them in one of the other types"});
      continue;
    }
    found_list of_one;
    check_dataset(dataset, of_one);
    for (contradiction& rule : of_one) {
      for (std::string* key : {&rule.key, &rule.other})
        if (key->starts_with("dataset.")) *key = path_of(which, key->substr(8));
      replace_all(rule.message, "in [dataset]", "of " + called(values, which));
      replace_all(rule.help, "[dataset]", called(values, which));
      found.push_back(std::move(rule));
    }
  }
  if (weights_are_usable) check_epochs(values, found);
}

}  // namespace penstock::config_file
