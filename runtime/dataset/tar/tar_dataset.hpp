// The tar dataset: its samples are members of WebDataset shards. Runs in a worker; the index says where the members are.
#pragma once

#include "runtime/base/member_choice.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/picture.hpp"
#include "runtime/dataset/tar/shard_reader.hpp"
#include "runtime/dataset/tar/tar_index.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Tensors: one for each entry of [dataset.members], sorted by name. A picture is uint8 [H, W, 3] as in an image
/// folder; a number is int64; an array is as its .npy says; everything else is uint8 [longest] with lengths. If there
/// are pictures, the records crop (int32 [4]) and flip (uint8) follow; the crop of a second picture is NAME_crop. All
/// pictures of a sample use the same random draws, so pictures of equal size get the same box.
class tar_dataset final : public Dataset {
 public:
  /// Refuses (errc::config, errc::dataset, errc::io) an entry of [dataset.members] that is invalid or matches no member
  /// of any sample, a member beyond 2 GiB, an array whose first sample cannot be read, compressed shards if libzstd is
  /// missing, and what object_store::open refuses.
  static result<std::unique_ptr<tar_dataset>> open(tar_index index, const config& settings);

  dataset_description describe() override { return description_; }
  void expect(std::span<const std::uint64_t> samples) override;
  /// Throws transient_error for errors that may be temporary (is_transient), otherwise penstock::error. what() names
  /// the member, not the sample.
  void load(const sample_request& request, const sample_slot& slot) override;
  /// "train-000.tar:folder/key".
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

  /// The sample's member that the choice selects. Refuses (errc::sample) a sample with no such member or with two, and
  /// a member that is not a file.
  [[nodiscard]] static result<indexed_member> choose(const member_choice& choice, const indexed_sample& sample);

 private:
  struct array_form {
    dtype element = dtype::uint8;
    std::vector<std::uint64_t> shape;
  };
  struct wanted_tensor {
    member_choice choice;
    std::optional<array_form> array;
    std::size_t crop = 0;  ///< for pictures: index of the tensor that receives the box
  };

  tar_dataset(tar_index index, const config& settings, std::shared_ptr<object_store> store);
  result<void> prepare(std::vector<member_choice> choices);
  result<tensor_spec> spec_of(wanted_tensor& wanted, std::uint64_t longest);
  result<tensor_spec> spec_of_array(wanted_tensor& wanted);
  result<std::span<const std::span<const std::byte>>> read(std::uint64_t index);
  void write(const wanted_tensor& wanted, std::size_t tensor, std::span<const std::byte> contents,
             random_source& random, const sample_slot& slot);
  void write_picture(const wanted_tensor& wanted, std::size_t tensor, std::span<const std::byte> contents,
                     random_source& random, const sample_slot& slot);

  tar_index index_;
  shard_reader shards_;
  picture_loader pictures_;
  std::vector<wanted_tensor> wanted_;
  std::size_t flip_ = 0;  ///< index of the tensor `flip`; 0: there are no pictures
  dataset_description description_;
  indexed_sample sample_;                ///< the sample being loaded
  std::vector<indexed_member> members_;  ///< members of that sample, one for each of wanted_
};

/// "train-000.tar:folder/key".
std::string name_of_sample(const tar_index& index, std::uint64_t sample);

}  // namespace penstock
