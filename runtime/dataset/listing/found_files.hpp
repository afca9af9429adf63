// Which files or objects a dataset consists of: what [dataset] path means, for all types that read files. Used by the
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
  /// Whether a file of a folder belongs to the dataset, by its name. An object with another name counts as a folder.
  bool (*belongs)(std::string_view name);
  /// Files that are not listed, but whose facts are wanted: the indexes of token files. May be null.
  bool (*is_beside)(std::string_view name) = nullptr;
  bool may_be_listed = true;  ///< whether a file that ends in .txt lists the files
};

struct found_files {
  std::string folder;  ///< what the names are relative to, without a slash at its end; "" is "/"
  std::vector<std::string> names;  ///< relative or absolute, in the order of the dataset; at least one, none twice
  std::vector<std::string> notices;
  std::shared_ptr<object_store> store;  ///< for URLs, else null
  std::vector<object_facts> facts;      ///< then: of each file

  std::unordered_map<std::string, object_facts> beside;  ///< objects that is_beside takes, by their URLs
  std::vector<std::string> listed;  ///< the objects whose URLs begin with one of these, without a further '/', are in `names` or `beside`

  [[nodiscard]] std::string path(std::size_t file) const;
  /// The file as it is now, or the object of its facts. Refuses as local_file::open.
  [[nodiscard]] result<std::shared_ptr<readable>> open(std::size_t file) const;
};

/// `path` is one file; a folder: all files directly in it that belong, in byte order; a pattern: braces ({000..127}, {a,b})
/// are expanded first, in order, then *, ? and [] in each result, in byte order; or a list: a text file with a file or
/// pattern in each line, relative to it, except for lines that are empty or begin with #. A path that exists is taken
/// literally. Refuses (errc::dataset, errc::io) what is missing, a pattern without a match, and a file listed twice. It
/// opens only lists.
///
/// "s3://bucket/..." takes the same forms, with wildcards after the last '/' only. A path that ends in '/', or in no name that
/// belongs, is a folder, and a pattern is never taken literally. "http://..." and "https://..." are one file, a list or a
/// pattern of braces. A list names files or objects, not both. Refuses (errc::config, errc::io) also what object_store refuses.
result<found_files> find_files(const std::string& path, const file_kind& kind, const store_options& options = {});

/// found_files::folder for this path.
std::string folder_of_files(const std::string& path, const file_kind& kind);
/// A name of found_files as a path.
std::string path_of_file(const std::string& folder, std::string_view name);

/// "'PATH' " before the failure's message.
tl::unexpected<failure> about_file(std::string_view path, failure why);

}  // namespace penstock
