#include "runtime/dataset/factory.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/dataset_type.hpp"
#include "runtime/dataset/arrays/arrays_dataset.hpp"
#include "runtime/dataset/mixture/mixed_dataset.hpp"
#include "runtime/dataset/mixture/mixture.hpp"
#include "runtime/dataset/picture/image_folder.hpp"
#include "runtime/dataset/picture/webp.hpp"
#include "runtime/dataset/records/records.hpp"
#include "runtime/dataset/store_settings.hpp"
#include "runtime/dataset/synthetic/synthetic.hpp"
#include "runtime/dataset/tar/tar_dataset.hpp"
#include "runtime/dataset/tokens/tokens_dataset.hpp"

#include <fmt/format.h>

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

namespace penstock {
namespace {

/// A dataset type whose files the session lists; workers read them through the sealed list.
struct listed_dataset {
  dataset_type type;
  result<listing> (*list)(const config&, const listing_progress&);
  dataset_description (*describe)(const index_view&, const config&, decoder_rule);
  result<std::unique_ptr<Dataset>> (*open)(index_view, const config&, decoder_rule, int checked);
};

dataset_description describe_records(const index_view& index, const config&, decoder_rule) {
  return record_dataset::describe(index);
}

std::string_view first_name(const index_view& index) {
  return index.files() == 0 ? std::string_view() : index.name(0);
}

result<std::unique_ptr<Dataset>> open_records(index_view index, const config& settings, decoder_rule, int) {
  auto store = store_for(settings, first_name(index));
  if (!store) return tl::unexpected(std::move(store.error()));
  return std::make_unique<record_dataset>(std::move(index), settings.dataset.path, std::move(*store));
}

/// A new type of dataset whose files the session lists needs a line here, its facts in
/// runtime/base/dataset_type.hpp, and a folder.
constexpr std::array listed_datasets{
    listed_dataset{
        dataset_type::image_folder,
        [](const config& c, const listing_progress& told) { return list_pictures(c.dataset.path, told, store_options_of(c)); },
        [](const index_view& index, const config& c, decoder_rule by) {
          return image_folder_dataset::describe(index, c.image, by);
        },
        [](index_view index, const config& c, decoder_rule by, int checked) -> result<std::unique_ptr<Dataset>> {
          checked_files known(checked, index.samples());
          auto store = store_for(c, "");
          if (!store) return tl::unexpected(std::move(store.error()));
          return std::make_unique<image_folder_dataset>(std::move(index), c.image, folder_of_pictures(c.dataset.path), by,
                                                        std::move(known), std::move(*store));
        }},
    listed_dataset{
        dataset_type::npy,
        [](const config& c, const listing_progress& told) { return list_npy(c.dataset.path, told, store_options_of(c)); },
        describe_records, open_records},
    listed_dataset{dataset_type::raw,
                   [](const config& c, const listing_progress& told) {
                     return list_raw(c.dataset.path, c.dataset.shape, c.dataset.dtype, told, store_options_of(c));
                   },
                   describe_records, open_records},
};

result<const listed_dataset*> find(dataset_type type) {
  const auto found = std::ranges::find(listed_datasets, type, &listed_dataset::type);
  if (found != listed_datasets.end()) return &*found;
  if (type == dataset_type::custom) {
    return refuse(
        errc::config,
        "[dataset] type = \"custom\": only its worker program knows this dataset ([loader] command)");
  }
  return refuse(errc::config, "a dataset of type {} has no list of files", name_of(type));
}

/// The index of one dataset. It has everything that can be learnt from the dataset's files.
struct dataset_index {
  unique_fd file;
  std::vector<std::string> notices;
};

result<dataset_index> index_of_shards(const config& settings, const std::function<void(const index_progress&)>& told) {
  const auto shards = list_shards(settings.dataset.path, store_options_of(settings));
  if (!shards) return tl::unexpected(shards.error());
  auto found = find_index(*shards, settings.storage.cache, told);
  if (!found) return tl::unexpected(std::move(found.error()));
  add_notices_about(found->index, found->notices);
  return dataset_index{std::move(found->file), std::move(found->notices)};
}

result<prepared_dataset> describe_tar(const config& settings, int index_fd) {
  auto index = tar_index::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  prepared_dataset prepared;
  prepared.in_store = is_url(settings.dataset.path) || (index->shards() > 0 && is_url(index->shard(0).name));
  auto dataset = tar_dataset::open(std::move(*index), settings);
  if (!dataset) return tl::unexpected(std::move(dataset.error()));
  prepared.description = (*dataset)->describe();
  return prepared;
}

result<dataset_index> index_of_tokens(const config& settings) {
  auto sealed = seal_token_index(settings.dataset, store_options_of(settings));
  if (!sealed) return tl::unexpected(std::move(sealed.error()));
  return dataset_index{std::move(sealed->file), std::move(sealed->notices)};
}

result<prepared_dataset> describe_tokens(const config& settings, int index_fd) {
  const auto index = token_index::map(index_fd);
  if (!index) return tl::unexpected(index.error());
  prepared_dataset prepared;
  prepared.in_store = is_url(settings.dataset.path) || is_url(index->file(0).name);
  prepared.description = tokens_dataset::describe(*index, settings.dataset);
  return prepared;
}

result<dataset_index> index_of_arrays(const config& settings) {
  auto sealed = seal_array_index(settings.dataset, store_options_of(settings));
  if (!sealed) return tl::unexpected(std::move(sealed.error()));
  return dataset_index{std::move(*sealed), {}};
}

result<prepared_dataset> describe_arrays(const config& settings, int index_fd) {
  const auto index = array_index::map(index_fd);
  if (!index) return tl::unexpected(index.error());
  prepared_dataset prepared;
  prepared.in_store = is_url(settings.dataset.path);
  prepared.description = index->description();
  return prepared;
}

result<std::unique_ptr<Dataset>> make_arrays(const config& settings, int index_fd) {
  auto index = array_index::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  auto store = store_for(settings, "");
  if (!store) return tl::unexpected(std::move(store.error()));
  return std::make_unique<arrays_dataset>(std::move(*index), settings.dataset.path, std::move(*store));
}

result<std::unique_ptr<Dataset>> make_tokens(const config& settings, int index_fd) {
  auto index = token_index::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  auto store = store_for(settings, index->file(0).name);
  if (!store) return tl::unexpected(std::move(store.error()));
  return std::make_unique<tokens_dataset>(std::move(*index), settings.dataset, std::move(*store));
}

result<std::unique_ptr<Dataset>> make_tar(const config& settings, int index_fd) {
  auto index = tar_index::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  auto made = tar_dataset::open(std::move(*index), settings);
  if (!made) return tl::unexpected(std::move(made.error()));
  return std::unique_ptr<Dataset>(std::move(*made));
}

}  // namespace

result<listing> list_dataset(const config& settings, const listing_progress& progress) {
  const auto dataset = find(settings.dataset.type);
  if (!dataset) return tl::unexpected(dataset.error());
  return (*dataset)->list(settings, progress);
}

namespace {

result<dataset_index> index_of_listing(const config& settings) {
  const auto dataset = find(settings.dataset.type);
  if (!dataset) return tl::unexpected(dataset.error());
  auto listed = (*dataset)->list(settings, {});
  if (!listed) return tl::unexpected(std::move(listed.error()));
  if (settings.dataset.type == dataset_type::image_folder) {
    const auto is_webp = [&](const listed_file& file) { return format_by_name(listed->name_of(file)) == picture_format::webp; };
    if (std::ranges::any_of(listed->files, is_webp))
      if (auto ok = check_webp(); !ok) return tl::unexpected(std::move(ok.error()));
  }
  auto sealed = seal_index(*listed);
  if (!sealed) return tl::unexpected(std::move(sealed.error()));
  return dataset_index{std::move(*sealed), std::move(listed->notices)};
}

result<prepared_dataset> describe_listing(const config& settings, int index_fd, decoder_rule by) {
  const auto dataset = find(settings.dataset.type);
  if (!dataset) return tl::unexpected(dataset.error());
  const auto index = index_view::map(index_fd);
  if (!index) return tl::unexpected(index.error());
  prepared_dataset prepared;
  prepared.in_store = index->of_objects();
  prepared.description = (*dataset)->describe(*index, settings, by);
  if (by == decoder_rule::cpu || settings.dataset.type != dataset_type::image_folder) return prepared;
  auto checked = checked_files::make(index->samples());
  if (!checked) return tl::unexpected(std::move(checked.error()));
  prepared.checked = std::move(*checked);
  return prepared;
}

result<dataset_index> make_index(const config& settings, const std::function<void(const index_progress&)>& told) {
  switch (settings.dataset.type) {
    case dataset_type::synthetic: return dataset_index{};
    case dataset_type::tar: return index_of_shards(settings, told);
    case dataset_type::tokens: return index_of_tokens(settings);
    default: return has_several_arrays(settings.dataset) ? index_of_arrays(settings) : index_of_listing(settings);
  }
}

/// Describes the dataset from its index, as every worker does, so that the descriptions are equal.
result<prepared_dataset> describe(const config& settings, int index_fd, decoder_rule by) {
  switch (settings.dataset.type) {
    case dataset_type::synthetic: {
      auto description = synthetic_dataset::describe(settings.dataset);
      if (!description) return tl::unexpected(std::move(description.error()));
      prepared_dataset prepared;
      prepared.description = std::move(*description);
      return prepared;
    }
    case dataset_type::tar: return describe_tar(settings, index_fd);
    case dataset_type::tokens: return describe_tokens(settings, index_fd);
    default: return has_several_arrays(settings.dataset) ? describe_arrays(settings, index_fd) : describe_listing(settings, index_fd, by);
  }
}

result<prepared_dataset> prepare_one(const config& settings, result<dataset_index> index, decoder_rule by) {
  if (!index) return tl::unexpected(std::move(index.error()));
  auto prepared = describe(settings, index->file.get(), by);
  if (!prepared) return prepared;
  prepared->index = std::move(index->file);
  prepared->notices = std::move(index->notices);
  return prepared;
}

result<prepared_dataset> prepare_one_with_order(const config& settings, result<dataset_index> index, decoder_rule by) {
  auto prepared = prepare_one(settings, std::move(index), by);
  if (!prepared) return prepared;
  auto order = read_sampling(settings, prepared->description, prepared->index.get());
  if (!order) return tl::unexpected(std::move(order.error()));
  prepared->notices.insert(prepared->notices.end(), order->notices.begin(), order->notices.end());
  prepared->order = std::move(*order);
  return prepared;
}

failure of_part(const config& mixture, std::size_t which, failure why) {
  why.message = fmt::format("the dataset '{}' of the mixture: {}", mixture.datasets[which].name, why.message);
  return why;
}

template <class Prepare>
result<prepared_dataset> prepare_mixture(const config& settings, const Prepare& prepare) {
  prepared_dataset all;
  std::vector<dataset_description> parts;
  for (std::size_t d = 0; d < settings.datasets.size(); ++d) {
    auto part = prepare(settings_of_part(settings, d));
    if (!part) return tl::unexpected(of_part(settings, d, std::move(part.error())));
    parts.push_back(part->description);
    for (const std::string& notice : part->notices)
      all.notices.push_back(fmt::format("{}: {}", settings.datasets[d].name, notice));
    part->notices.clear();
    all.in_store = all.in_store || part->in_store;
    all.parts.push_back(std::move(*part));
  }
  auto description = describe_mixture(settings.datasets, parts);
  if (!description) return tl::unexpected(std::move(description.error()));
  all.description = std::move(*description);
  return all;
}

/// `rows`: whether other datasets write to the same rows.
enum class rows_of_slots { own, shared };

result<std::unique_ptr<Dataset>> make_one(const config& settings, int index_fd, rows_of_slots rows,
                                          decoder_rule by, int checked_fd = -1) {
  const dataset_type type = settings.dataset.type;
  if (type == dataset_type::synthetic) {
    auto description = synthetic_dataset::describe(settings.dataset);
    if (!description) return tl::unexpected(std::move(description.error()));
    return std::make_unique<synthetic_dataset>(settings.dataset, rows == rows_of_slots::own);
  }
  if (type == dataset_type::tar) return make_tar(settings, index_fd);
  if (type == dataset_type::tokens) return make_tokens(settings, index_fd);
  if (has_several_arrays(settings.dataset)) return make_arrays(settings, index_fd);
  const auto dataset = find(type);
  if (!dataset) return tl::unexpected(dataset.error());
  auto index = index_view::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  if (index->type() != type) {
    return refuse(errc::protocol, "the index belongs to a dataset of type {}, not {}", name_of(index->type()),
                  name_of(type));
  }
  return (*dataset)->open(std::move(*index), settings, by, checked_fd);
}

}  // namespace

std::vector<int> prepared_dataset::descriptors() const {
  if (checked) return {index.get(), checked.get()};
  if (parts.empty()) return index ? std::vector{index.get()} : std::vector<int>();
  std::vector<int> all;
  for (const prepared_dataset& part : parts) all.push_back(part.index.get());
  return all;
}

std::vector<int> prepared_dataset::indexes() const {
  std::vector<int> all;
  if (index) all.push_back(index.get());
  for (const prepared_dataset& part : parts)
    if (part.index) all.push_back(part.index.get());
  return all;
}

namespace {

result<unique_fd> copy_of(const unique_fd& fd) {
  if (!fd) return unique_fd();
  unique_fd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return refuse_os(errc::system, errno, "duplicating the index of a dataset");
  return copy;
}

result<prepared_dataset> copy_of(const prepared_dataset& one) {
  auto index = copy_of(one.index);
  auto checked = copy_of(one.checked);
  if (!index || !checked) return tl::unexpected(index ? checked.error() : index.error());
  prepared_dataset copy{std::move(*index), std::move(*checked), one.description, one.order, one.notices, {}, one.in_store};
  for (const prepared_dataset& part : one.parts) {
    auto made = copy_of(part);
    if (!made) return made;
    copy.parts.push_back(std::move(*made));
  }
  return copy;
}

class kept_stream {
 public:
  void keep(const config& settings, prepared_dataset prepared, decoder_rule by) {
    const std::lock_guard lock(mutex_);
    settings_ = settings;
    prepared_ = std::move(prepared);
    by_ = by;
  }
  std::optional<prepared_dataset> take(const config& settings, decoder_rule by) {
    const std::lock_guard lock(mutex_);
    if (!prepared_ || by_ != by || !is_same(settings)) return std::nullopt;
    return std::exchange(prepared_, std::nullopt);
  }

 private:
  [[nodiscard]] bool is_same(const config& other) const {
    image_config image = other.image;
    image.decoder = settings_.image.decoder;  // not compared here, because `by` is compared instead
    return settings_.dataset == other.dataset && settings_.datasets == other.datasets && settings_.sampler == other.sampler &&
           settings_.storage == other.storage && settings_.image == image;
  }

  std::mutex mutex_;
  config settings_;
  std::optional<prepared_dataset> prepared_;
  decoder_rule by_ = decoder_rule::cpu;
};

kept_stream& the_kept_stream() {
  static kept_stream kept;
  return kept;
}

}  // namespace

void keep_prepared(const config& settings, const prepared_dataset& prepared, decoder_rule by) {
  if (auto copy = copy_of(prepared)) the_kept_stream().keep(settings, std::move(*copy), by);
}

result<prepared_dataset> prepare_dataset(const config& settings,
                                         const std::function<void(const index_progress&)>& told,
                                         decoder_rule by) {
  if (auto kept = the_kept_stream().take(settings, by)) return std::move(*kept);
  if (settings.datasets.empty()) return prepare_one(settings, make_index(settings, told), by);
  return prepare_mixture(settings, [&](const config& part) { return prepare_one(part, make_index(part, told), by); });
}

result<prepared_dataset> prepare_stream(const config& settings,
                                        const std::function<void(const index_progress&)>& told,
                                        decoder_rule by, std::vector<unique_fd> made) {
  if (auto kept = the_kept_stream().take(settings, by)) return std::move(*kept);
  auto next = made.begin();
  const auto index_of = [&](const config& part) -> result<dataset_index> {
    if (made.empty() || part.dataset.type == dataset_type::synthetic) return make_index(part, told);
    if (next == made.end()) return refuse(errc::protocol, "there are {}, which is too few for the datasets of the mixture", counted(made.size(), "index", "indexes"));
    return dataset_index{std::move(*next++), {}};
  };
  if (settings.datasets.empty()) return prepare_one_with_order(settings, index_of(settings), by);
  auto all = prepare_mixture(settings, [&](const config& part) { return prepare_one_with_order(part, index_of(part), by); });
  if (!all) return all;
  std::vector<dataset_description> parts;
  std::vector<sampling> orders;
  for (const prepared_dataset& part : all->parts) {
    parts.push_back(part.description);
    orders.push_back(part.order);
    orders.back().notices.clear();  // the part's notices already contain them
  }
  auto order = sampling_of_mixture(settings, parts, orders);
  if (!order) return tl::unexpected(std::move(order.error()));
  all->notices.insert(all->notices.end(), order->notices.begin(), order->notices.end());
  all->order = std::move(*order);
  return all;
}

result<std::unique_ptr<Dataset>> make_dataset(const config& settings, int index_fd, decoder_rule by) {
  return make_dataset(settings, std::span(&index_fd, 1), by);
}

result<std::unique_ptr<Dataset>> make_dataset(const config& settings, std::span<const int> index_fds,
                                              decoder_rule by) {
  if (settings.datasets.empty())
    return make_one(settings, index_fds.empty() ? -1 : index_fds.front(), rows_of_slots::own, by,
                    index_fds.size() > 1 ? index_fds[1] : -1);
  std::vector<mixed_dataset::part> parts;
  std::vector<dataset_description> descriptions;
  for (std::size_t d = 0; d < settings.datasets.size(); ++d) {
    const int index_fd = d < index_fds.size() ? index_fds[d] : -1;
    auto part = make_one(settings_of_part(settings, d), index_fd, rows_of_slots::shared, by);
    if (!part) return tl::unexpected(of_part(settings, d, std::move(part.error())));
    descriptions.push_back((*part)->describe());
    parts.push_back({settings.datasets[d].name, std::move(*part), descriptions.back().samples});
  }
  auto description = describe_mixture(settings.datasets, descriptions);
  if (!description) return tl::unexpected(std::move(description.error()));
  return std::make_unique<mixed_dataset>(std::move(parts), std::move(*description));
}

}  // namespace penstock
