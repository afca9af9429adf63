#include "tools/penstock/dataset/batch_picture.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace penstock::cli {
namespace {

// ---- undoing the conversion

float half_as_float(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000U) << 16U;
  const std::uint32_t exponent = (h >> 10U) & 0x1fU;
  const std::uint32_t fraction = h & 0x3ffU;
  if (exponent == 0) {  // too small for a normal number
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide =
      exponent == 31 ? 0x7f800000U | (fraction << 13U) : ((exponent + 112) << 23U) | (fraction << 13U);
  return std::bit_cast<float>(sign | wide);
}

float element_as_float(const std::byte* at, dtype type) {
  std::uint16_t two = 0;
  float four = 0;
  switch (type) {
    case dtype::float16: std::memcpy(&two, at, sizeof two); return half_as_float(two);
    case dtype::bfloat16:
      std::memcpy(&two, at, sizeof two);
      return std::bit_cast<float>(static_cast<std::uint32_t>(two) << 16U);
    case dtype::float32: std::memcpy(&four, at, sizeof four); return four;
    default: return static_cast<float>(std::to_integer<unsigned>(*at));
  }
}

/// Undoes (x/255 - mean)/std: the byte that was uploaded.
class denormaliser {
 public:
  denormaliser(const gpu_config& gpu, dtype type) : gpu_(gpu), type_(type) {}
  [[nodiscard]] std::uint8_t operator()(const std::byte* at, std::size_t channel) const {
    float value = element_as_float(at, type_);
    if (type_ != dtype::uint8)
      value = static_cast<float>((value * gpu_.std[channel] + gpu_.mean[channel]) * 255.0);
    return static_cast<std::uint8_t>(std::clamp(std::lround(value), 0L, 255L));
  }

 private:
  const gpu_config& gpu_;
  dtype type_;
};

struct image_shape {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  bool channels_first = false;
};

result<image_shape> shape_of(const tensor_view& t, const gpu_config& gpu) {
  const bool first = gpu.layout == image_layout::nchw;
  if (t.shape.size() != 4 || t.shape[first ? 1 : 3] != 3)
    return refuse(errc::dataset, "the images do not have three channels");
  return image_shape{static_cast<std::uint32_t>(t.shape[first ? 2 : 1]),
                     static_cast<std::uint32_t>(t.shape[first ? 3 : 2]), first};
}

rgb_picture picture_of_row(const std::vector<std::byte>& bytes, std::size_t row, const image_shape& shape,
                           dtype type, const gpu_config& gpu) {
  const denormaliser back(gpu, type);
  const std::size_t plane = std::size_t{shape.height} * shape.width;
  const std::byte* const begin = bytes.data() + row * plane * 3 * size_of(type);
  rgb_picture picture{shape.width, shape.height, std::vector<std::uint8_t>(plane * 3)};
  for (std::size_t pixel = 0; pixel < plane; ++pixel) {
    for (std::size_t c = 0; c < 3; ++c) {
      const std::size_t element = shape.channels_first ? c * plane + pixel : pixel * 3 + c;
      picture.pixels[pixel * 3 + c] = back(begin + element * size_of(type), c);
    }
  }
  return picture;
}

}  // namespace

sample_names::sample_names(const config& settings, const prepared_dataset& prepared) {
  if (auto dataset = make_dataset(settings, prepared.descriptors())) dataset_ = std::move(*dataset);
  if (!settings.datasets.empty() || settings.dataset.type != dataset_type::image_folder) return;
  if (auto view = index_view::map(prepared.index.get())) view_.emplace(std::move(*view));
}

std::string sample_names::of_class(std::int64_t label) const {
  if (view_ && label >= 0 && label < view_->classes())
    return printable(view_->class_name(static_cast<std::uint32_t>(label)));
  return fmt::format("class {}", label);
}

std::optional<std::string> sample_names::of_sample(std::uint64_t sample) const {
  if (!dataset_) return std::nullopt;
  return printable(dataset_->name_of(sample));
}

result<batch_picture> picture_of_batch(const Batch& batch, const config& settings, const sample_names& known,
                                       const std::string& device) {
  if (batch.rows() == 0)
    return refuse(errc::sample, "nothing to show: no sample of this batch could be loaded");
  const auto is_image = [](const tensor_view& t) { return t.name == "image"; };
  const auto image = std::ranges::find_if(batch.tensors(), is_image);
  if (image == batch.tensors().end()) {
    std::string there;
    for (const tensor_view& t : batch.tensors()) there += (there.empty() ? "" : ", ") + std::string(t.name);
    return refuse(errc::dataset,
                  "nothing to show: batches of this dataset have the tensors {}, but no images", there);
  }
  const auto shape = shape_of(*image, settings.gpu);
  if (!shape) return tl::unexpected(shape.error());
  const std::vector<std::byte> bytes = batch.read_back("image");
  std::vector<std::int64_t> labels(batch.rows(), -1);
  for (const tensor_view& t : batch.tensors()) {
    if (t.name != "label" || t.type != dtype::int64) continue;
    const auto raw = batch.read_back("label");
    std::memcpy(labels.data(), raw.data(), std::min(raw.size(), labels.size() * sizeof(std::int64_t)));
  }
  std::vector<sheet_tile> tiles;
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    const std::uint64_t sample = batch.samples()[row];
    const std::string name = known.of_class(labels[row]);
    tiles.push_back(
        {picture_of_row(bytes, row, *shape, image->type, settings.gpu), {name, fmt::format("#{}", sample)}});
    const auto path = known.of_sample(sample);
    samples.push_back({{"sample", sample},
                       {"label", labels[row]},
                       {"class", name},
                       {"path", path ? nlohmann::ordered_json(*path) : nlohmann::ordered_json(nullptr)}});
  }
  const std::string title = fmt::format("{}: epoch {}, batch {}; {} of {} x {}, {} on {}", settings.name,
                                        batch.epoch(), batch.sequence(), counted(batch.rows(), "sample"),
                                        shape->height, shape->width, name_of(image->type), device);
  return batch_picture{
      contact_sheet(title, tiles),
      {{"epoch", batch.epoch()}, {"seq", batch.sequence()}, {"samples", std::move(samples)}}};
}

}  // namespace penstock::cli
