// Inspects all files of a dataset: classes, counts, sizes, and files that are probably mistakes. Used by the
// inspect command.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::inspected {

struct class_facts {
  std::string name;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

struct file_facts {
  std::string name;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

/// Describes sorted numbers.
struct spread {
  std::uint64_t least = 0;
  std::uint64_t median = 0;
  std::uint64_t most = 0;
};

/// Something that may be intended, but usually is not.
struct suspicion {
  std::uint64_t sample = 0;
  std::string path;  ///< relative to the dataset's path; any bytes
  std::string reason;
};

struct picture_summary {
  std::map<std::string, std::uint64_t> formats;  ///< how many pictures have each format, such as "jpeg"
  std::uint64_t turned = 0;                      ///< pictures rotated by their EXIF orientation
  std::uint64_t smaller_than_size = 0;  ///< pictures smaller than [image] size in width or height, which will be enlarged
  spread width, height;                 ///< sizes of readable pictures, after applying the orientation
};

/// Describes the numbers in npy, raw, synthetic and custom samples.
struct value_summary {
  std::uint64_t samples = 0;  ///< how many were checked, evenly spread
  double least = 0;  ///< NaN, like most and mean, if no value is finite
  double most = 0;
  double mean = 0;
  std::uint64_t not_finite = 0;
};

struct inspection {
  std::string type;
  std::string path;
  std::string fingerprint;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::vector<class_facts> classes;  ///< image-folder
  std::vector<file_facts> files;     ///< only for npy, raw and tar
  std::string element;               ///< "float32 [128, 4]": npy, raw, synthetic, custom; for tar, each tensor's
  std::optional<spread> file_bytes;
  std::optional<picture_summary> pictures;
  std::optional<value_summary> values;
  std::vector<suspicion> suspicious;  ///< in sample order
  std::vector<std::string> notices;
};

/// Called with the number of finished files and the total. From any thread, one call at a time.
using progress = std::function<void(std::uint64_t, std::uint64_t)>;

/// Reads every picture of an image folder (headers and end, without decoding pixels), and up to 4096 samples
/// of other types. A custom dataset's worker program loads its samples, in a session on the host device.
/// Fails if the listing or that session fails.
result<inspection> look_at(const config& settings, unsigned threads, const progress& told);

}  // namespace penstock::inspected
