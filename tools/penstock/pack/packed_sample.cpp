#include "tools/penstock/pack/packed_sample.hpp"

#include "runtime/dataset/picture/jpeg_transcoder.hpp"
#include "runtime/dataset/picture/jpeg_writer.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/tar/member_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace penstock::pack {
namespace {

/// Where the extension begins: at the last dot of the last part.
std::size_t extension_at(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos || path.find('/', dot) != std::string_view::npos ? path.size() : dot;
}

}  // namespace

picture_packer::picture_packer(std::string folder, const pack_settings& settings)
    : folder_(std::move(folder)), settings_(settings), pictures_([] {
        image_config config;
        config.augment = augment_kind::none;
        return config;
      }()) {}

result<packed_picture> picture_packer::pack(std::string_view name) {
  auto picture = copied_or_encoded(name);
  if (!picture || !settings_.restart_markers) return picture;
  if (auto ok = add_markers(*picture); !ok) return tl::unexpected(std::move(ok.error()));
  return picture;
}

/// PNGs and WebPs, and pictures that cannot have markers or are too large to be decoded, stay as they are.
result<void> picture_packer::add_markers(packed_picture& picture) const {
  const auto file = std::as_bytes(std::span(picture.contents));
  const auto info = probe(file, format_by_name(picture.extension));
  if (!info) return tl::unexpected(info.error());
  const bool fits = std::uint64_t{info->stored.width} * info->stored.height <= pictures_.config().max_pixels;
  std::optional<transcoded_jpeg> made;
  if (info->format == picture_format::jpeg && fits) {
    auto done = add_restart_markers(file);
    if (!done) return tl::unexpected(std::move(done.error()));
    made = std::move(*done);
  }
  picture.markers.unchanged = made ? 0 : 1;
  picture.markers.were_progressive = made && made->was_progressive ? 1 : 0;
  picture.markers.bytes_before = file.size();
  if (made) picture.contents = std::move(made->file);
  picture.markers.bytes_after = picture.contents.size();
  return {};
}

result<packed_picture> picture_packer::copied_or_encoded(std::string_view name) {
  auto file = reader_.read(fmt::format("{}/{}", folder_, name), picture_bytes_max(pictures_.config()));
  if (!file) return tl::unexpected(std::move(file.error()));
  if (settings_.quality == 0) {
    const std::size_t at = extension_at(name);
    return packed_picture{lower_case(name.substr(std::min(name.size(), at + 1))),
                          std::string(reinterpret_cast<const char*>(file->data()), file->size()),
                          {}};
  }
  const auto whole = pictures_.load_whole(*file, format_by_name(name), settings_.resize);
  if (!whole) return tl::unexpected(whole.error());
  auto jpeg = write_jpeg(whole->size, whole->pixels, static_cast<int>(settings_.quality));
  if (!jpeg) return tl::unexpected(std::move(jpeg.error()));
  return packed_picture{"jpg", std::move(*jpeg), {}};
}

std::string shard_keys::key_for(std::string_view path) {
  const std::string_view stem = path.substr(0, extension_at(path));
  std::string key(stem);
  const std::size_t slash = key.rfind('/');
  std::replace(key.begin() + static_cast<std::ptrdiff_t>(slash == std::string::npos ? 0 : slash + 1),
               key.end(), '.', '_');
  for (unsigned number = 2; !taken_.insert(key).second; ++number) {
    key.resize(stem.size());
    key += fmt::format("-{}", number);
  }
  return key;
}

}  // namespace penstock::pack
