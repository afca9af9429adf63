#include "runtime/dataset/picture/image_folder.hpp"

#include "runtime/base/text.hpp"

#include <algorithm>

namespace penstock {

image_folder_dataset::image_folder_dataset(index_view index, const image_config& config, std::string root)
    : index_(std::move(index)),
      root_(std::move(root)),
      file_bytes_max_(picture_bytes_max(config)),
      pictures_(config) {}

dataset_description image_folder_dataset::describe(const index_view& index, const image_config& config) {
  return {"image-folder",
          index.samples(),
          {{"image", dtype::uint8, {config.size[0], config.size[1], 3}, tensor_role::image},
           {"label", dtype::int64, {}, tensor_role::data},
           {"crop", dtype::int32, {4}, tensor_role::record},
           {"flip", dtype::uint8, {}, tensor_role::record}},
          std::string(index.fingerprint())};
}

dataset_description image_folder_dataset::describe() {
  return describe(index_, pictures_.config());
}

void image_folder_dataset::load(const sample_request& request, const sample_slot& slot) {
  std::string path = root_;
  path += '/';
  path += index_.name(request.index);
  const auto file = reader_.read(path, file_bytes_max_);
  if (!file) throw_failed(file.error());
  const augmentation chosen = value_or_throw(pictures_.load(*file, format_by_name(index_.name(request.index)),
                                                            request.random, slot.as<std::uint8_t>(0)));
  slot.as<std::int64_t>(1)[0] = index_.class_of(request.index);
  std::ranges::copy(crop_record(chosen.box), slot.as<std::int32_t>(2).begin());
  slot.as<std::uint8_t>(3)[0] = chosen.flip ? 1 : 0;
}

std::string image_folder_dataset::name_of(std::uint64_t index) const {
  return printable(index_.name(index));
}

}  // namespace penstock
