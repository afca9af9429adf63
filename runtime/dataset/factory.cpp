#include "runtime/dataset/factory.hpp"

#include "runtime/base/dataset_type.hpp"
#include "runtime/dataset/picture/image_folder.hpp"
#include "runtime/dataset/records/records.hpp"
#include "runtime/dataset/synthetic/synthetic.hpp"

namespace penstock {
namespace {

tl::unexpected<failure> not_built_in(dataset_type type) {
  if (type == dataset_type::custom) {
    return refuse(errc::config,
                  "[dataset] type = \"custom\" is known to the worker program of [loader] command alone");
  }
  return refuse(errc::config,
                "[dataset] type = \"{}\" is not available yet: image-folder, npy, raw and synthetic are",
                name_of(type));
}

result<listing> list(const config& settings, const listing_progress& progress) {
  const dataset_config& dataset = settings.dataset;
  switch (dataset.type) {
    case dataset_type::image_folder: return list_image_folder(dataset.path, progress);
    case dataset_type::npy: return list_npy(dataset.path, progress);
    case dataset_type::raw: return list_raw(dataset.path, dataset.shape, dataset.dtype, progress);
    default: return not_built_in(dataset.type);
  }
}

}  // namespace

result<prepared_dataset> prepare_dataset(const config& settings, const listing_progress& progress) {
  prepared_dataset prepared;
  if (settings.dataset.type == dataset_type::synthetic) {
    auto description = synthetic_dataset::describe(settings.dataset);
    if (!description) return tl::unexpected(std::move(description.error()));
    prepared.description = std::move(*description);
    return prepared;
  }
  auto listed = list(settings, progress);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  auto sealed = seal_index(*listed);
  if (!sealed) return tl::unexpected(std::move(sealed.error()));
  prepared.index = std::move(*sealed);
  prepared.notices = std::move(listed->notices);
  // Described from the sealed form, as every worker will: the two cannot disagree.
  auto index = index_view::map(prepared.index.get());
  if (!index) return tl::unexpected(std::move(index.error()));
  prepared.description = settings.dataset.type == dataset_type::image_folder
                             ? image_folder_dataset::describe(*index, settings.image)
                             : record_dataset::describe(*index);
  return prepared;
}

result<std::unique_ptr<Dataset>> make_dataset(const config& settings, int index_fd) {
  const dataset_type type = settings.dataset.type;
  if (type == dataset_type::synthetic) {
    auto description = synthetic_dataset::describe(settings.dataset);
    if (!description) return tl::unexpected(std::move(description.error()));
    return std::make_unique<synthetic_dataset>(settings.dataset);
  }
  if (type != dataset_type::image_folder && type != dataset_type::npy && type != dataset_type::raw) {
    return not_built_in(type);
  }
  auto index = index_view::map(index_fd);
  if (!index) return tl::unexpected(std::move(index.error()));
  if (index->type() != type) {
    return refuse(errc::protocol, "the index is that of a dataset of type {}, not {}", name_of(index->type()),
                  name_of(type));
  }
  if (type == dataset_type::image_folder) {
    return std::make_unique<image_folder_dataset>(std::move(*index), settings.image, settings.dataset.path);
  }
  return std::make_unique<record_dataset>(std::move(*index), settings.dataset.path);
}

}  // namespace penstock
