#include "runtime/dataset/listing/found_files.hpp"

#include "runtime/base/byte_order_mark.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/listing/folder.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/listing/path_pattern.hpp"
#include "runtime/dataset/local_file.hpp"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <unordered_set>

namespace penstock {
namespace {

constexpr std::uint64_t files_max = 1'000'000;
constexpr std::uint64_t list_bytes_max = 256 * MiB;

bool is_list(std::string_view path, const file_kind& kind) noexcept {
  return kind.may_be_listed && ends_with_any_case(path, ".txt");
}

/// In "https://host/a/b*", the position of the slash after the host. Braces and wildcards can only follow it.
std::size_t path_begin(std::string_view address) noexcept {
  return std::min(address.find('/', address.find("://") + 3), address.size());
}

bool is_folder_of_s3(std::string_view address, const file_kind& kind) {
  if (!address.starts_with("s3://") || is_pattern(address.substr(path_begin(address))) || is_list(address, kind)) return false;
  const std::string_view name = address.substr(std::min(address.rfind('/') + 1, address.size()));
  return address.size() <= path_begin(address) || name.empty() || !kind.belongs(name);
}

std::string without_slash(std::string path) {
  if (path.ends_with('/')) path.pop_back();
  return path;
}

/// Collects the files of one path, in order.
class file_search {
 public:
  file_search(const file_kind& kind, const store_options& options, found_files& found)
      : kind_(kind), options_(options), found_(found) {}

  result<void> take(const std::string& path) {
    if (is_url(path)) {
      if (is_folder_of_s3(path, kind_)) return take_folder_of_s3(without_slash(path));
      return is_list(path, kind_) ? take_list(path) : take_objects(path);
    }
    struct ::stat facts {};
    if (::stat(path.c_str(), &facts) == 0) {
      if (S_ISDIR(facts.st_mode)) return take_folder(without_slash(path));
      if (is_list(path, kind_)) return take_list(path);
      add(path);
      return {};
    }
    if (errno != ENOENT && errno != ENAMETOOLONG)
      return refuse_os(errc::io, errno, fmt::format("the dataset '{}' cannot be examined", printable(path)));
    if (!is_pattern(path)) return refuse(errc::dataset, "the dataset '{}' does not exist", printable(path));
    return take_files(path);
  }

  /// Returns the names and facts of all collected files.
  result<void> finish() {
    std::vector<std::string> unknown;
    std::unordered_set<std::string_view> seen;
    const std::string below = found_.folder + "/";
    for (const auto& [path, facts] : all_) {
      if (!seen.insert(path).second)
        return refuse(errc::dataset, "the {} '{}' is listed twice", kind_.one, printable(path));
      if (found_.store && !is_url(path))
        return refuse(errc::dataset, "the list names '{}' and also objects: list either files or objects", printable(path));
      found_.names.push_back(path.starts_with(below) ? path.substr(below.size()) : path);
      if (found_.store && !facts.exists) unknown.push_back(path);
    }
    if (!found_.store) return {};
    auto examined = found_.store->examine(unknown);
    if (!examined) return tl::unexpected(std::move(examined.error()));
    auto next = examined->begin();
    for (auto& [path, facts] : all_) found_.facts.push_back(std::move(facts.exists ? facts : *next++));
    return {};
  }

 private:
  /// Adds a file, or an object whose facts are not known yet.
  void add(std::string path) { all_.emplace_back(std::move(path), object_facts{0, {}, false}); }

  result<void> take_folder(const std::string& folder) {
    auto paths = files_of_folder(folder, kind_.many, found_.notices, kind_.belongs);
    if (!paths) return tl::unexpected(std::move(paths.error()));
    for (std::string& path : *paths) add(std::move(path));
    return paths->empty() ? nothing_in(folder) : result<void>();
  }

  result<void> take_files(const std::string& pattern) {
    auto paths = paths_of_pattern(pattern, kind_.one);
    if (!paths) return tl::unexpected(std::move(paths.error()));
    for (std::string& path : *paths) add(std::move(path));
    return {};
  }

  result<void> take_list(const std::string& path) {
    auto text = contents_of(path);
    if (!text) return about_file(path, std::move(text.error()));
    const std::string folder = folder_of_files(path, kind_);
    const std::size_t before = all_.size();
    for (std::string_view rest = without_byte_order_mark(*text); !rest.empty();) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() || line.front() == '#') continue;
      const std::string one = path_of_file(folder, line);
      auto ok = is_url(one)       ? take_objects(one)
                : is_pattern(one) ? take_files(one)
                                  : (add(one), result<void>());
      if (!ok) return ok;
    }
    if (all_.size() == before) return refuse(errc::dataset, "the list '{}' contains no file names", printable(path));
    return {};
  }

  result<std::string> contents_of(const std::string& path) {
    std::shared_ptr<readable> file;
    if (is_url(path)) {
      if (auto ok = open_store(path); !ok) return tl::unexpected(std::move(ok.error()));
      auto facts = found_.store->examine(std::span(&path, 1));
      if (!facts) return tl::unexpected(std::move(facts.error()));
      file = found_.store->object(path, facts->front());
    } else {
      auto opened = local_file::open(path);
      if (!opened) return tl::unexpected(std::move(opened.error()));
      file = std::move(*opened);
    }
    if (file->bytes() > list_bytes_max)
      return refuse(errc::dataset, "is {}, but a list of files may be at most {}", bytes_for_people(file->bytes()),
                    bytes_for_people(list_bytes_max));
    std::string text(file->bytes(), '\0');
    if (auto ok = file->read(0, std::as_writable_bytes(std::span(text))); !ok) return tl::unexpected(std::move(ok.error()));
    return text;
  }

  // ---- objects

  result<void> open_store(const std::string& path) {
    if (auto sound = parse_url(path); !sound) return tl::unexpected(std::move(sound.error()));
    if (found_.store) return {};
    auto store = object_store::open(options_);
    if (!store) return tl::unexpected(std::move(store.error()));
    found_.store = std::move(*store);
    return {};
  }

  result<void> take_folder_of_s3(const std::string& folder) {
    const std::size_t before = all_.size();
    const auto belongs = [&](std::string_view name) { return !name.starts_with('.') && kind_.belongs(name); };
    if (auto ok = take_listed(folder + "/", belongs); !ok) return ok;
    return all_.size() == before ? nothing_in(folder) : result<void>();
  }

  /// Adds one object, or the objects that match a pattern.
  result<void> take_objects(const std::string& pattern) {
    if (auto ok = open_store(pattern); !ok) return ok;
    auto expanded = expand_braces(pattern);
    if (!expanded) return tl::unexpected(std::move(expanded.error()));
    for (std::string& one : *expanded) {
      const std::size_t wildcard = one.find_first_of("*?[", path_begin(one));
      if (wildcard == std::string::npos) {
        add(std::move(one));
      } else if (auto ok = take_wildcard(one, wildcard); !ok) {
        return ok;
      }
    }
    return {};
  }

  result<void> take_wildcard(const std::string& pattern, std::size_t wildcard) {
    if (!pattern.starts_with("s3://"))
      return refuse(errc::dataset,
                    "'{}' has a wildcard, but an HTTP server does not list its files: name the {}, as in \"{{000..127}}\", or "
                    "in a list",
                    printable(pattern), kind_.many);
    const std::size_t slash = pattern.rfind('/');
    if (slash > wildcard)
      return refuse(errc::dataset,
                    "'{}' has a wildcard in the name of a folder: in s3:// paths it must come after the last '/'",
                    printable(pattern));
    const std::string wanted = pattern.substr(slash + 1);
    const std::size_t before = all_.size();
    const auto fits = [&](std::string_view name) {
      return ::fnmatch(wanted.c_str(), std::string(name).c_str(), FNM_PERIOD | FNM_NOESCAPE) == 0;
    };
    if (auto ok = take_listed(pattern.substr(0, wildcard), fits); !ok) return ok;
    if (all_.size() == before) return refuse(errc::dataset, "no {} is named '{}'", kind_.one, printable(pattern));
    return {};
  }

  template <class Wanted>
  result<void> take_listed(const std::string& beginning, const Wanted& wanted) {
    if (auto ok = open_store(beginning); !ok) return ok;
    const std::string bucket = beginning.substr(0, path_begin(beginning) + 1);
    const std::size_t name_at = beginning.rfind('/') + 1 - bucket.size();
    const auto is_beside = [&](std::string_view name) { return kind_.is_beside != nullptr && kind_.is_beside(name); };
    auto objects = found_.store->list(beginning, listing_depth::folder, files_max, [&](std::string_view key) {
      const std::string_view name = key.substr(std::min(name_at, key.size()));
      return !name.empty() && (wanted(name) || is_beside(name));
    });
    if (!objects) return tl::unexpected(std::move(objects.error()));
    for (listed_object& one : *objects) {
      object_facts facts{one.bytes, std::move(one.tag)};
      if (is_beside(std::string_view(one.key).substr(name_at)))
        found_.beside.emplace(bucket + one.key, std::move(facts));
      else
        all_.emplace_back(bucket + one.key, std::move(facts));
    }
    found_.listed.push_back(beginning);
    return {};
  }

  [[nodiscard]] tl::unexpected<failure> nothing_in(const std::string& folder) const {
    return refuse(errc::dataset, "no {} ({}) in '{}'", kind_.many, kind_.text, printable(folder));
  }

  const file_kind& kind_;
  const store_options& options_;
  found_files& found_;
  std::vector<std::pair<std::string, object_facts>> all_;
};

}  // namespace

tl::unexpected<failure> about_file(std::string_view path, failure why) {
  why.message = fmt::format("'{}' {}", printable(path), why.message);
  return tl::unexpected(std::move(why));
}

std::string path_of_file(const std::string& folder, std::string_view name) {
  return is_url(name) || (name.starts_with('/') && !is_url(folder)) ? std::string(name) : fmt::format("{}/{}", folder, name);
}

std::string folder_of_files(const std::string& path, const file_kind& kind) {
  if (!is_url(path)) return folder_of_pattern(path);
  if (is_folder_of_s3(path, kind)) return without_slash(path);
  const std::size_t slash = path.substr(0, path.find_first_of("{*?[", path_begin(path))).rfind('/');
  return path.substr(0, std::max(slash, path_begin(path)));
}

std::string found_files::path(std::size_t file) const {
  return path_of_file(folder, names[file]);
}

result<std::shared_ptr<readable>> found_files::open(std::size_t file) const {
  if (store) return store->object(path(file), facts[file]);
  auto opened = local_file::open(path(file));
  if (!opened) return tl::unexpected(std::move(opened.error()));
  return std::shared_ptr<readable>(std::move(*opened));
}

result<found_files> find_files(const std::string& path, const file_kind& kind, const store_options& options) {
  if (path.empty())
    return refuse(errc::dataset, "no path is given: set [dataset] path to a {}, a folder of {}{} or a pattern", kind.one,
                  kind.many, kind.may_be_listed ? ", a list" : "");
  found_files found;
  found.folder = folder_of_files(path, kind);
  file_search search(kind, options, found);
  if (auto ok = search.take(path); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto ok = search.finish(); !ok) return tl::unexpected(std::move(ok.error()));
  return found;
}

}  // namespace penstock
