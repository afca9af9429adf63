#include "runtime/dataset/sampling.hpp"

#include "runtime/base/byte_order_mark.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/member_choice.hpp"
#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/listing/index.hpp"
#include "runtime/dataset/records/npy_header.hpp"
#include "runtime/dataset/tar/tar_dataset.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace penstock {
namespace {

/// 2^32 numbers.
constexpr std::uint64_t file_bytes_max = std::uint64_t{1} << 35U;

failure about(std::string_view key, const std::string& path, failure why) {
  why.message = fmt::format("[sampler] {} = '{}': {}", key, printable(path), why.message);
  return why;
}

/// Reads the numbers of a .npy file with one axis.
template <class T>
result<std::vector<T>> numbers_of_npy(std::span<const std::byte> bytes, dtype wanted) {
  const auto header = parse_npy_header(bytes.first(std::min(bytes.size(), npy_header_max)), bytes.size());
  if (!header) return tl::unexpected(header.error());
  if (header->element != wanted || header->shape.size() != 1) {
    return refuse(errc::dataset,
                  "it is an array of {} with {}, but must be an array of {} with one axis: save "
                  "numpy.asarray(a, '{}').reshape(-1)",
                  name_of(header->element), counted(header->shape.size(), "axis", "axes"), name_of(wanted),
                  name_of(wanted));
  }
  std::vector<T> numbers(header->shape[0]);
  std::memcpy(numbers.data(), bytes.data() + header->data_at, numbers.size() * sizeof(T));
  return numbers;
}

/// Skips blanks around a number, empty lines, and the rest of a line after '#'.
result<std::vector<std::uint64_t>> indices_of_text(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  std::vector<std::uint64_t> indices;
  for (std::uint64_t line_number = 1; !text.empty(); ++line_number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    std::string_view line = whole.substr(0, whole.find('#'));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(blanks)));
    line = line.substr(0, line.find_last_not_of(blanks) + 1);
    if (line.empty()) continue;
    const auto index = whole_number<std::uint64_t>(line);
    if (!index) {
      return refuse(errc::dataset,
                    "line {} is '{}': each line must be the index of a sample, a whole number from 0",
                    line_number, printable(shortened(line, 60)));
    }
    indices.push_back(*index);
  }
  return indices;
}

result<std::vector<std::uint64_t>> indices_of(std::span<const std::byte> bytes) {
  constexpr std::string_view magic = "\x93NUMPY";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(magic)) return indices_of_text(without_byte_order_mark(text));
  const auto numbers = numbers_of_npy<std::int64_t>(bytes, dtype::int64);
  if (!numbers) return tl::unexpected(numbers.error());
  const auto below = std::ranges::find_if(*numbers, [](std::int64_t i) { return i < 0; });
  if (below != numbers->end()) {
    return refuse(errc::dataset, "index {} (number {} of the list) is negative: indices count from 0", *below,
                  below - numbers->begin() + 1);
  }
  return std::vector<std::uint64_t>(numbers->begin(), numbers->end());
}

template <class T>
std::string hash_of(std::string_view kind, const std::vector<T>& numbers) {
  fingerprint_hash hash(kind);
  hash.add_text({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)});
  return hash.hex().substr(0, 16);
}

result<sampling> read_weights(const sampler_config& sampler, const dataset_description& dataset) {
  file_reader file;
  const auto bytes = file.read(sampler.weights, file_bytes_max);
  if (!bytes) return tl::unexpected(about("weights", sampler.weights, bytes.error()));
  const auto weights = numbers_of_npy<double>(*bytes, dtype::float64);
  if (!weights) return tl::unexpected(about("weights", sampler.weights, weights.error()));
  if (weights->size() != dataset.samples) {
    return tl::unexpected(
        about("weights", sampler.weights,
              {errc::dataset,
               fmt::format("it has {}, but the dataset has {}", counted(weights->size(), "weight"),
                           counted(dataset.samples, "sample")),
               0}));
  }
  auto order = weighted_order(*weights, sampler.epoch_samples);
  if (!order) return tl::unexpected(about("weights", sampler.weights, order.error()));
  return sampling{std::move(*order),
                  fmt::format("weighted {} {}", hash_of("weighted", *weights), sampler.epoch_samples),
                  {}};
}

result<sampling> read_subset(const sampler_config& sampler, const dataset_description& dataset) {
  file_reader file;
  const auto bytes = file.read(sampler.subset, file_bytes_max);
  if (!bytes) return tl::unexpected(about("subset", sampler.subset, bytes.error()));
  const auto indices = indices_of(*bytes);
  if (!indices) return tl::unexpected(about("subset", sampler.subset, indices.error()));
  auto order = subset_order(*indices, dataset.samples, sampler.shuffle);
  if (!order) return tl::unexpected(about("subset", sampler.subset, order.error()));
  sampling made{std::move(*order), "subset " + hash_of("subset", *indices), {}};
  auto sorted = *indices;
  std::ranges::sort(sorted);
  const auto repeats = static_cast<std::uint64_t>(std::ranges::unique(sorted).size());
  if (repeats != 0) {
    made.notices.push_back(
        fmt::format("[sampler] subset = '{}': {} of its {} indices {} repeated: a sample is delivered as "
                    "often as its index is listed",
                    printable(sampler.subset), repeats, indices->size(), repeats == 1 ? "is" : "are"));
  }
  return made;
}

result<sampling> balance_shards(const sampler_config& sampler, const string_map& members, int index_fd) {
  const auto choices = member_choices(members);
  if (!choices) return tl::unexpected(choices.error());
  const member_choice* const choice = class_among(*choices);
  if (choice == nullptr) {
    return refuse(errc::config,
                  "[sampler] kind = \"balanced\" needs a member with the number of the sample's class: name it in [dataset.members], for example "
                  "label = \"cls\"");
  }
  const auto index = tar_index::map(index_fd);
  if (!index) return tl::unexpected(index.error());
  std::vector<std::optional<std::int64_t>> numbers(index->samples());
  if (auto ok = index->read_all([&](std::uint64_t sample, const indexed_sample& found) {
        if (const auto member = tar_dataset::choose(*choice, found)) numbers[sample] = member->number;
      });
      !ok)
    return tl::unexpected(std::move(ok.error()));
  std::vector<std::int64_t> classes;
  for (const auto& number : numbers)
    if (number) classes.push_back(*number);
  std::ranges::sort(classes);
  classes.erase(std::ranges::unique(classes).begin(), classes.end());
  std::vector<std::uint32_t> class_of;
  for (const auto& number : numbers)
    class_of.push_back(number ? static_cast<std::uint32_t>(std::ranges::lower_bound(classes, *number) - classes.begin()) : no_class);
  auto order = balanced_order(class_of, sampler.epoch_samples);
  if (!order) {
    return refuse(errc::dataset, "[sampler] kind = \"balanced\" finds no classes: no sample has a number in its member .{}",
                  fmt::join(choice->extensions, " or ."));
  }
  sampling made{std::move(*order), fmt::format("balanced {} {}", hash_of("balanced", class_of), sampler.epoch_samples), {}};
  const auto without = static_cast<std::uint64_t>(std::ranges::count(class_of, no_class));
  if (without > 0) {
    const auto first = static_cast<std::uint64_t>(std::ranges::find(class_of, no_class) - class_of.begin());
    made.notices.push_back(fmt::format("[sampler] kind = \"balanced\" leaves out {} without a number in .{}: the first is '{}'",
                                       counted(without, "sample"), fmt::join(choice->extensions, " or ."), name_of_sample(*index, first)));
  }
  return made;
}

result<sampling> balance_classes(const sampler_config& sampler, const config& settings, int index_fd) {
  if (settings.dataset.type == dataset_type::tar) return balance_shards(sampler, settings.dataset.members, index_fd);
  if (settings.dataset.type != dataset_type::image_folder) {
    return refuse(errc::config, "[sampler] kind = \"balanced\" needs the classes of an image-folder or of tar shards");
  }
  const auto index = index_view::map(index_fd);
  if (!index) return tl::unexpected(index.error());
  std::vector<std::uint32_t> class_of(index->samples());
  for (std::uint64_t i = 0; i < class_of.size(); ++i) class_of[i] = index->class_of(i);
  auto order = balanced_order(class_of, sampler.epoch_samples);
  if (!order) return tl::unexpected(order.error());
  return sampling{std::move(*order), fmt::format("balanced {}", sampler.epoch_samples), {}};
}

result<sampling> shuffle_neighbours(const sampler_config& sampler, const config& settings,
                                    const dataset_description& dataset, int index_fd) {
  if (settings.dataset.type != dataset_type::tar || sampler.window_shards == 0) {
    return sampling{
        window_order(dataset.samples, sampler.window), fmt::format("window {}", sampler.window), {}};
  }
  const auto index = tar_index::map(index_fd);
  if (!index) return tl::unexpected(index.error());
  std::vector<std::uint64_t> ends(index->shards());
  for (std::uint64_t i = 0; i < ends.size(); ++i)
    ends[i] = index->shard(i).first_sample + index->shard(i).samples;
  return sampling{window_of_shards_order(std::move(ends), sampler.window_shards),
                  fmt::format("window of {} shards", sampler.window_shards),
                  {}};
}

}  // namespace

result<sampling> read_sampling(const config& settings, const dataset_description& dataset, int index_fd) {
  const sampler_config& sampler = settings.sampler;
  if (dataset.samples == 0) return sampling{};  // the plan will refuse it
  switch (sampler.kind) {
    case sampler_kind::shuffle:
    case sampler_kind::sequential: return sampling{};
    case sampler_kind::weighted: return read_weights(sampler, dataset);
    case sampler_kind::balanced: return balance_classes(sampler, settings, index_fd);
    case sampler_kind::subset: return read_subset(sampler, dataset);
    case sampler_kind::window: return shuffle_neighbours(sampler, settings, dataset, index_fd);
  }
  return sampling{};
}

}  // namespace penstock
