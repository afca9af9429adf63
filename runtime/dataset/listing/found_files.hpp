// Finds the files or objects of a dataset: the meaning of [dataset] path, for all types that read files. Used by the
// session and, for paths, by workers.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/storage/object_store.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace penstock {

struct file_kind {
  std::string_view one;   ///< "shard"
  std::string_view many;  ///< "shards"
  std::string_view text;  ///< "*.tar"
  /// Whether a file in a folder belongs to the dataset, by its name. An object whose name cannot belong to it counts
  /// as a folder.
  bool (*belongs)(std::string_view name);
  /// Files that are not part of the list, but whose facts are wanted: the indexes of token files. May be null.
  bool (*is_beside)(std::string_view name) = nullptr;
  bool may_be_listed = true;  ///< whether a file that ends in .txt lists the files
};

struct found_files {
  std::string folder;  ///< what the names are relative to, without a trailing slash; "" is "/"
  std::vector<std::string> names;  ///< relative or absolute, in the order of the dataset; at least one, no duplicates
  std::vector<std::string> notices;
  std::shared_ptr<object_store> store;  ///< for URLs, otherwise null
  std::vector<object_facts> facts;      ///< for URLs: the facts of each file

  std::unordered_map<std::string, object_facts> beside;  ///< the objects that is_beside accepts, by URL
  /// URL prefixes that were listed. An object whose URL adds only a name without '/' to one of them is in `names` or
  /// `beside`.
  std::vector<std::string> listed;

  [[nodiscard]] std::string path(std::size_t file) const;
  /// A file as it is now, or an object as it was listed. Refuses what local_file::open refuses.
  [[nodiscard]] result<std::shared_ptr<readable>> open(std::size_t file) const;
};

/// `path` is one of these:
///
///   a file
///   a folder    all files directly in it that belong to the dataset, in byte order
///   a pattern   first braces ({000..127}, {a,b}) are expanded in order, then *, ? and [] in each result, in byte order
///   a list      a text file with one file or pattern per line, relative to the list; lines that are empty or begin
///               with # are skipped
///
/// A path that exists is taken literally, also in a list. Refuses (errc::dataset, errc::io) a missing path, a pattern without a match, and
/// a file listed twice. Opens lists only.
///
/// "s3://bucket/..." takes the same forms, with wildcards only after the last '/'. It is a folder if it ends in '/' or
/// in a name that cannot belong to the dataset; a pattern is never taken literally. "http://..." and "https://..." are
/// one file, a list or a pattern of braces. A list names either files or objects. Also refuses (errc::config, errc::io)
/// what object_store refuses.
result<found_files> find_files(const std::string& path, const file_kind& kind, const store_options& options = {});

/// The value of found_files::folder for this path.
std::string folder_of_files(const std::string& path, const file_kind& kind);
/// A name of found_files as a path.
std::string path_of_file(const std::string& folder, std::string_view name);

/// Puts "'PATH' " before the failure's message.
tl::unexpected<failure> about_file(std::string_view path, failure why);

}  // namespace penstock
