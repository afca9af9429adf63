#include "runtime/dataset/picture/box.hpp"

#include "runtime/dataset/picture/portable_math.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

pixel_box centred(extent picture, extent box) noexcept {
  return {(picture.height - box.height) / 2, (picture.width - box.width) / 2, box.height, box.width};
}

std::uint32_t side_within(double side, std::uint32_t full) noexcept {
  return static_cast<std::uint32_t>(std::clamp(side, 1.0, static_cast<double>(full)));
}

}  // namespace

pixel_box largest_box(extent picture, extent target) noexcept {
  const std::uint64_t across = std::uint64_t{picture.width} * target.height;
  const std::uint64_t down = std::uint64_t{picture.height} * target.width;
  extent box = picture;
  if (across > down) {
    box.width = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, down / target.height));
  } else {
    box.height = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, across / target.width));
  }
  return centred(picture, box);
}

pixel_box centre_crop_box(extent picture, extent target, double fraction) noexcept {
  const pixel_box largest = largest_box(picture, target);
  const auto shrunk = [&](std::uint32_t side) {
    return side_within(std::floor(side * fraction + 0.5), side);
  };
  return centred(picture, {shrunk(largest.width), shrunk(largest.height)});
}

pixel_box random_resized_box(extent picture, range_2d scale, range_2d ratio, random_source& random) noexcept {
  const double width = picture.width;
  const double height = picture.height;
  const double log_low = portable_log(ratio[0]);
  const double log_high = portable_log(ratio[1]);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = width * height * random.uniform(scale[0], scale[1]);
    const double aspect = portable_exp(random.uniform(log_low, log_high));
    const double w =
        round_half_even(std::sqrt(area * aspect));  // IEEE requires sqrt and / to be correctly rounded
    const double h = round_half_even(std::sqrt(area / aspect));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    pixel_box box{0, 0, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(w)};
    box.top = random.below(picture.height - box.height + 1);
    box.left = random.below(picture.width - box.width + 1);
    return box;
  }
  const double narrowest = std::min(ratio[0], ratio[1]);
  const double widest = std::max(ratio[0], ratio[1]);
  extent box = picture;
  if (width / height < narrowest) {
    box.height = side_within(round_half_even(width / narrowest), picture.height);
  } else if (width / height > widest) {
    box.width = side_within(round_half_even(height * widest), picture.width);
  }
  return centred(picture, box);
}

augmentation choose_augmentation(extent picture, const image_config& config, random_source& random) noexcept {
  const extent target{config.size[1], config.size[0]};
  switch (config.augment) {
    case augment_kind::none: return {largest_box(picture, target), false};
    case augment_kind::centre_crop: return {centre_crop_box(picture, target, config.crop_fraction), false};
    case augment_kind::random_resized_crop: break;
  }
  // Draw the flip first: its random number then does not depend on how many tries the box takes.
  const bool flip = random.uniform() < config.flip;
  return {random_resized_box(picture, config.scale, config.ratio, random), flip};
}

}  // namespace penstock
