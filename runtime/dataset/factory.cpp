#include "runtime/dataset/factory.hpp"

#include "runtime/base/dataset_type.hpp"
#include "runtime/dataset/picture/image_folder.hpp"
#include "runtime/dataset/records/records.hpp"
#include "runtime/dataset/synthetic/synthetic.hpp"
#include "runtime/dataset/tar/tar_dataset.hpp"
#include "runtime/dataset/tokens/tokens_dataset.hpp"

#include <algorithm>
#include <array>

namespace penstock {
namespace {

/// A dataset that the session lists and workers read from the sealed list.
struct listed_dataset {
  dataset_type type;
  result<listing> (*list)(const config&, const listing_progress&);
  dataset_description (*describe)(const index_view&, const config&, decoder_rule);
  std::unique_ptr<Dataset> (*open)(index_view, const config&, decoder_rule);
};

dataset_description describe_records(const index_view& index, const config&, decoder_rule) {
  return record_dataset::describe(index);
}

std::unique_ptr<Dataset> open_records(index_view index, const config& settings, decoder_rule) {
  return std::make_unique<record_dataset>(std::move(index), settings.dataset.path);
}

/// A new type of this kind needs a line here, its facts in runtime/base/dataset_type.hpp, and a folder.
constexpr std::array listed_datasets{
    listed_dataset{
        dataset_type::image_folder,
        [](const config& c, const listing_progress& told) { return list_image_folder(c.dataset.path, told); },
        [](const index_view& index, const config& c, decoder_rule by) {
          return image_folder_dataset::describe(index, c.image, by);
        },
        [](index_view index, const config& c, decoder_rule by) -> std::unique_ptr<Dataset> {
          return std::make_unique<image_folder_dataset>(std::move(index), c.image, c.dataset.path, by);
        }},
    listed_dataset{
        dataset_type::npy,
        [](const config& c, const listing_progress& told) { return list_npy(c.dataset.path, told); },
        describe_records, open_records},
    listed_dataset{dataset_type::raw,
                   [](const config& c, const listing_progress& told) {
                     return list_raw(c.dataset.path, c.dataset.shape, c.dataset.dtype, told);
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

result<prepared_dataset> prepare_tar(const config& settings,
                                     const std::function<void(const index_progress&)>& told) {
  const auto shards = list_shards(settings.dataset.path);
  if (!shards) return tl::unexpected(shards.error());
  auto found = find_index(*shards, settings.storage.cache, told);
  if (!found) return tl::unexpected(std::move(found.error()));
  prepared_dataset prepared;
  prepared.index = std::move(found->file);
  prepared.notices = std::move(found->notices);
  add_notices_about(found->index, prepared.notices);
  auto dataset = tar_dataset::open(std::move(found->index), settings);
  if (!dataset) return tl::unexpected(std::move(dataset.error()));
  prepared.description = (*dataset)->describe();
  return prepared;
}

result<prepared_dataset> prepare_tokens(const config& settings) {
  auto sealed = seal_token_index(settings.dataset);
  if (!sealed) return tl::unexpected(std::move(sealed.error()));
  const auto index = token_index::map(sealed->file.get());
  if (!index) return tl::unexpected(index.error());
  prepared_dataset prepared;
  prepared.index = std::move(sealed->file);
  prepared.description = tokens_dataset::describe(*index, settings.dataset);
  prepared.notices = std::move(sealed->notices);
  return prepared;
}

result<std::unique_ptr<Dataset>> make_tokens(const config& settings, int index_fd) {
  auto index = token_index::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  return std::make_unique<tokens_dataset>(std::move(*index), settings.dataset);
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

result<prepared_dataset> prepare_dataset(const config& settings,
                                         const std::function<void(const index_progress&)>& told,
                                         decoder_rule by) {
  if (settings.dataset.type == dataset_type::tar) return prepare_tar(settings, told);
  if (settings.dataset.type == dataset_type::tokens) return prepare_tokens(settings);
  prepared_dataset prepared;
  if (settings.dataset.type == dataset_type::synthetic) {
    auto description = synthetic_dataset::describe(settings.dataset);
    if (!description) return tl::unexpected(std::move(description.error()));
    prepared.description = std::move(*description);
    return prepared;
  }
  const auto dataset = find(settings.dataset.type);
  if (!dataset) return tl::unexpected(dataset.error());
  auto listed = (*dataset)->list(settings, {});
  if (!listed) return tl::unexpected(std::move(listed.error()));
  auto sealed = seal_index(*listed);
  if (!sealed) return tl::unexpected(std::move(sealed.error()));
  prepared.index = std::move(*sealed);
  prepared.notices = std::move(listed->notices);
  // Describe the sealed form, as every worker does, so that the descriptions are equal.
  auto index = index_view::map(prepared.index.get());
  if (!index) return tl::unexpected(std::move(index.error()));
  prepared.description = (*dataset)->describe(*index, settings, by);
  return prepared;
}

result<prepared_dataset> prepare_stream(const config& settings,
                                        const std::function<void(const index_progress&)>& told,
                                        decoder_rule by) {
  auto prepared = prepare_dataset(settings, told, by);
  if (!prepared) return prepared;
  auto order = read_sampling(settings, prepared->description, prepared->index.get());
  if (!order) return tl::unexpected(std::move(order.error()));
  prepared->notices.insert(prepared->notices.end(), order->notices.begin(), order->notices.end());
  prepared->order = std::move(*order);
  return prepared;
}

result<std::unique_ptr<Dataset>> make_dataset(const config& settings, int index_fd, decoder_rule by) {
  const dataset_type type = settings.dataset.type;
  if (type == dataset_type::synthetic) {
    auto description = synthetic_dataset::describe(settings.dataset);
    if (!description) return tl::unexpected(std::move(description.error()));
    return std::make_unique<synthetic_dataset>(settings.dataset);
  }
  if (type == dataset_type::tar) return make_tar(settings, index_fd);
  if (type == dataset_type::tokens) return make_tokens(settings, index_fd);
  const auto dataset = find(type);
  if (!dataset) return tl::unexpected(dataset.error());
  auto index = index_view::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  if (index->type() != type) {
    return refuse(errc::protocol, "the index is that of a dataset of type {}, not {}", name_of(index->type()),
                  name_of(type));
  }
  return (*dataset)->open(std::move(*index), settings, by);
}

}  // namespace penstock
