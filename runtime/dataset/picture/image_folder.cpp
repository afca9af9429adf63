#include "runtime/dataset/picture/image_folder.hpp"

#include "runtime/base/encoded_picture.hpp"
#include "runtime/base/text.hpp"

#include <algorithm>

namespace penstock {

bool device_may_decode(const image_config& config, std::uint64_t index) noexcept {
  if (config.decoder != decoder_rule::hybrid) return config.decoder == decoder_rule::gpu;
  // The finaliser of SplitMix64: consecutive numbers get unrelated values.
  std::uint64_t mixed = index + 0x9e37'79b9'7f4a'7c15U;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58'476d'1ce4'e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d0'49bb'1331'11ebU;
  mixed ^= mixed >> 31U;
  return static_cast<double>(mixed >> 11U) * 0x1p-53 < config.gpu_share;
}

image_folder_dataset::image_folder_dataset(index_view index, const image_config& config, std::string root,
                                           decoder_rule by, checked_files checked, std::shared_ptr<object_store> store)
    : index_(std::move(index)),
      root_(std::move(root)),
      by_(by),
      file_bytes_max_(picture_bytes_max(config)),
      objects_(std::move(store), file_check::none),
      pictures_(config, std::move(checked)) {}

dataset_description image_folder_dataset::describe(const index_view& index, const image_config& config,
                                                   decoder_rule by) {
  dataset_description described{
      "image-folder",
      index.samples(),
      {{"image", dtype::uint8, {config.size[0], config.size[1], 3}, tensor_role::image},
       {"label", dtype::int64, {}, tensor_role::data},
       {"crop", dtype::int32, {4}, tensor_role::record},
       {"flip", dtype::uint8, {}, tensor_role::record}},
      std::string(index.fingerprint())};
  if (by != decoder_rule::cpu)
    described.tensors.push_back({"encoded", dtype::uint8, {encoded_row_bytes}, tensor_role::encoded});
  return described;
}

dataset_description image_folder_dataset::describe() {
  return describe(index_, pictures_.config(), by_);
}

std::string image_folder_dataset::path_of(std::uint64_t index) const {
  std::string path = root_;
  path += '/';
  path += index_.name(index);
  return path;
}

std::shared_ptr<readable> image_folder_dataset::object(std::uint64_t index) {
  return objects_.file(index, [&]() -> pooled_file {
    return {path_of(index), index_.size_of_file(index), 0, std::string(index_.tag(index))};
  });
}

void image_folder_dataset::expect(std::span<const std::uint64_t> samples) {
  if (!objects_.is_remote()) return;
  for (const std::uint64_t sample : samples)
    if (const std::uint64_t bytes = index_.size_of_file(sample); bytes <= file_bytes_max_)
      object(sample)->expect({{0, bytes}});
}

void image_folder_dataset::load(const sample_request& request, const sample_slot& slot) {
  const auto file = objects_.is_remote() ? reader_.read(*object(request.index), file_bytes_max_)
                                         : reader_.read(path_of(request.index), file_bytes_max_);
  if (!file) throw_failed(file.error());
  const picture_format expected = format_by_name(index_.name(request.index));
  const augmentation chosen = value_or_throw(
      by_ == decoder_rule::cpu ? pictures_.load(*file, expected, request.random, slot.as<std::uint8_t>(0))
                               : pictures_.load_or_pass_on(
                                     *file, expected, request.random, slot.as<std::uint8_t>(0), slot.bytes(4),
                                     {device_may_decode(pictures_.config(), request.index), request.index}));
  slot.as<std::int64_t>(1)[0] = index_.class_of(request.index);
  std::ranges::copy(crop_record(chosen.box), slot.as<std::int32_t>(2).begin());
  slot.as<std::uint8_t>(3)[0] = chosen.flip ? 1 : 0;
}

std::string image_folder_dataset::name_of(std::uint64_t index) const {
  return printable(index_.name(index));
}

}  // namespace penstock
