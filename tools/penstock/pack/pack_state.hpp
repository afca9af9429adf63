// What `penstock pack` has written so far: pack.json next to the shards. It lets an interrupted run continue after the
// last complete shard, and is also the report. Pure, except for reading and writing the file.
#pragma once

#include "runtime/base/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::pack {

/// All settings that determine the bytes of the shards.
struct pack_settings {
  std::string fingerprint;  ///< identifies the image folder's list of files
  std::uint64_t shard_size = 0;
  std::uint32_t resize = 0;   ///< pixels of the shorter side; 0: unchanged
  std::uint32_t quality = 0;  ///< JPEG quality; 0: files are copied
  bool restart_markers = false;
  std::uint64_t frame_size = 0;  ///< how many bytes a frame of zstd holds; 0: shards are not compressed
  bool operator==(const pack_settings&) const = default;
};

/// The effect of adding restart markers; all 0 without them.
struct marker_counts {
  std::uint64_t unchanged = 0;         ///< pictures without markers: PNGs, WebPs, and JPEGs that cannot have them
  std::uint64_t were_progressive = 0;  ///< JPEGs that were converted to sequential
  std::uint64_t bytes_before = 0;      ///< total bytes of all pictures before markers were added
  std::uint64_t bytes_after = 0;
  void add(const marker_counts& other) noexcept;
};

struct packed_shard {
  std::string name;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

struct unpacked_sample {
  std::uint64_t sample = 0;  ///< the picture's index in the image folder
  std::string path;          ///< relative to the image folder
  std::string reason;
};

struct pack_state {
  pack_settings settings;
  std::string folder;
  std::uint64_t samples_all = 0;  ///< samples in the image folder
  std::uint64_t next_sample = 0;  ///< earlier samples are in a complete shard, or have failed
  std::vector<packed_shard> shards;
  std::vector<unpacked_sample> failed;
  marker_counts markers;  ///< counts for all shards
  [[nodiscard]] bool complete() const noexcept { return next_sample == samples_all; }
};

/// "shard-000012.tar", or .tar.zst
std::string shard_name(std::size_t number, const pack_settings& settings);

/// The object that is stored and that --json prints, "penstock.pack/1".
nlohmann::ordered_json as_json(const pack_state& state);

/// The state in this folder; none if it contains neither a state nor shards. Refuses (errc::usage) a folder that has shards
/// but no state, that was written with other settings, or whose shards are missing or have a different size.
result<std::optional<pack_state>> read_state(const std::string& folder, const pack_settings& settings);

/// Replaces the state in this folder.
result<void> write_state(const std::string& folder, const pack_state& state);

}  // namespace penstock::pack
