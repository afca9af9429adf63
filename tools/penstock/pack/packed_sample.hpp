// One picture of an image folder as members of a shard. Used by the threads of `penstock pack`.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/picture/picture.hpp"
#include "tools/penstock/pack/pack_state.hpp"

#include <string>
#include <string_view>
#include <unordered_set>

namespace penstock::pack {

struct packed_picture {
  std::string extension;  ///< "jpg", "jpeg", "png" or "webp"
  std::string contents;
  marker_counts markers;  ///< counts for this picture
};

/// Reads pictures of one folder, reduces and encodes them again, and gives them restart markers, if the settings say so.
/// Each thread needs its own.
class picture_packer {
 public:
  picture_packer(std::string folder, const pack_settings& settings);

  /// Refuses a picture that cannot be read, or that must be decoded (to reduce it or add restart markers) and cannot be.
  result<packed_picture> pack(std::string_view name);

 private:
  result<packed_picture> copied_or_encoded(std::string_view name);
  result<void> add_markers(packed_picture& picture) const;

  std::string folder_;
  pack_settings settings_;
  file_reader reader_;
  picture_loader pictures_;
};

/// Keys of one shard: the picture's path without its extension, with '_' for dots in its last part, and a number
/// appended if another picture has that key.
class shard_keys {
 public:
  std::string key_for(std::string_view path);

 private:
  std::unordered_set<std::string> taken_;
};

}  // namespace penstock::pack
