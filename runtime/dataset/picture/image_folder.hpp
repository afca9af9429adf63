// The image-folder dataset: JPEG, PNG and WebP files in class folders. Runs in a worker; the listing comes from the
// index.
#pragma once

#include "runtime/dataset/file_pool.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/listing/index.hpp"
#include "runtime/dataset/picture/picture.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <memory>
#include <string>

namespace penstock {

/// With decoder = "hybrid", compares a hash of the sample's index with gpu_share. A sample has the same decoder in
/// every epoch and process.
[[nodiscard]] bool device_may_decode(const image_config& config, std::uint64_t index) noexcept;

/// Tensors: image (uint8 [H, W, 3], not flipped) and label (int64); as records, crop (int32 [4]: top, left, height, width in
/// source pixels after orientation) and flip (uint8: 1 if the device must flip the row). If the device may decode, also
/// encoded (encoded_picture).
class image_folder_dataset final : public Dataset {
 public:
  /// `root`: what the names in the index are relative to. `by`: cpu for callers that need pixels, regardless of the
  /// config. `checked`: from the session, if the device may decode. `store`: for URLs, otherwise null.
  image_folder_dataset(index_view index, const image_config& config, std::string root, decoder_rule by,
                       checked_files checked = {}, std::shared_ptr<object_store> store = nullptr);

  static dataset_description describe(const index_view& index, const image_config& config, decoder_rule by);

  dataset_description describe() override;
  void expect(std::span<const std::uint64_t> samples) override;
  /// Throws transient_error for errors that may be temporary (is_transient), otherwise penstock::error. what() does not name the file.
  void load(const sample_request& request, const sample_slot& slot) override;
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  [[nodiscard]] std::string path_of(std::uint64_t index) const;
  std::shared_ptr<readable> object(std::uint64_t index);

  index_view index_;
  std::string root_;
  decoder_rule by_;
  std::uint64_t file_bytes_max_;
  file_reader reader_;
  file_pool objects_;  ///< only for objects, because a local file is opened for each sample
  picture_loader pictures_;
};

}  // namespace penstock
