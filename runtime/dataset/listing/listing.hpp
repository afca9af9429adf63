// What a built-in dataset consists of, as the session finds it on disk
// at its start. For its sealed form, which workers read, see index.hpp.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/storage/object_store.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// One file of a listing. Its name is a range of the listing's pool.
struct listed_file {
  std::uint64_t name_at = 0;
  std::uint32_t name_size = 0;
  std::uint32_t label = 0;    ///< the class; image-folder only
  std::uint64_t size = 0;     ///< in bytes; 0 for a dangling link
  std::uint64_t data_at = 0;  ///< where samples begin in the file; npy only
  std::uint32_t tag_size = 0;  ///< size of an object's version, which follows its name
};

struct listing {
  dataset_type type = dataset_type::image_folder;
  std::vector<std::string> classes;
  std::vector<listed_file> files;  ///< in the order of sample indices
  std::string pool;
  std::uint64_t samples = 0;
  dtype element = dtype::uint8;      ///< npy, raw: element type of a sample
  std::vector<std::uint32_t> shape;  ///< npy, raw: shape of a sample
  bool of_objects = false;           ///< the files are objects
  std::vector<std::string> notices;  ///< messages for the user: files that were left out and why
  std::string fingerprint;           ///< 32 hex digits

  /// Relative to the dataset's folder, or absolute; any bytes.
  [[nodiscard]] std::string_view name_of(const listed_file& file) const noexcept {
    return std::string_view(pool).substr(file.name_at, file.name_size);
  }
  [[nodiscard]] std::string_view tag_of(const listed_file& file) const noexcept {
    return std::string_view(pool).substr(file.name_at + file.name_size, file.tag_size);
  }
  /// Adds a file with this name and, for an object, its version `tag`.
  listed_file& add(std::string_view name, std::uint64_t size, std::string_view tag = {}) {
    files.push_back({pool.size(), static_cast<std::uint32_t>(name.size()), 0, size, 0, static_cast<std::uint32_t>(tag.size())});
    pool += name;
    pool += tag;
    return files.back();
  }
};

/// Called periodically while listing, with the number of samples found so far, and once at the end.
using listing_progress = std::function<void(std::uint64_t)>;

/// Classes are the folders directly below `path`; without any, the whole folder is one class, named ".". Samples are in
/// byte order of (class, path within the class). Refuses (errc::dataset, or errc::io with errno) a path that is missing
/// or not a folder, a folder anywhere below it that cannot be read, and a tree without a single picture. Notices report
/// pictures next to class folders, and folders that contain themselves through a link.
result<listing> list_image_folder(const std::string& path, const listing_progress& progress = {});

/// The pictures of a dataset, from one of three sources: a folder (list_image_folder); the objects below an s3://
/// folder, treated as files; or a list (find_files), in its order. Names in a list are relative to it. The first folder
/// in a picture's name is its class; without any folders, all pictures have the class ".". Refuses what
/// list_image_folder and find_files refuse, and (errc::dataset) names in a list that are not relative.
result<listing> list_pictures(const std::string& path, const listing_progress& progress = {}, const store_options& options = {});

/// What the names of list_pictures are relative to.
std::string folder_of_pictures(const std::string& path);

/// The .npy files that find_files finds; the first axis counts samples. Refuses what npy_header.hpp refuses, and a file
/// whose dtype or sample shape differs from the first file's.
result<listing> list_npy(const std::string& path, const listing_progress& progress = {}, const store_options& options = {});

/// The files that find_files finds, whatever their names, with back-to-back records of `shape` and `element`. Refuses a
/// size that is not a multiple of the record.
result<listing> list_raw(const std::string& path, const std::vector<std::uint32_t>& shape, dtype element,
                         const listing_progress& progress = {}, const store_options& options = {});

/// What the names of an npy or raw dataset are relative to.
std::string folder_of_records(const std::string& path, dataset_type type);

/// Hex XXH3-128 over everything that decides which samples there are: type, classes, element type and shape, and the
/// name, size and class of each file, in order. Each name is preceded by
/// its length, so different listings never give the same bytes to the hash.
std::string fingerprint_of(const listing& list);

}  // namespace penstock
