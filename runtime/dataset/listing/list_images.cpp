// The listing of an image folder: classes, then the pictures of each class at any depth.
#include "runtime/base/counted.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/folder.hpp"
#include "runtime/dataset/listing/found_files.hpp"
#include "runtime/dataset/listing/listing.hpp"
#include "runtime/dataset/listing/names.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>

namespace penstock {
namespace {

constexpr std::uint64_t progress_step = 4096;
constexpr std::size_t no_parent = static_cast<std::size_t>(-1);

/// Walks folders below one root and collects pictures.
class picture_walk {
 public:
  picture_walk(int root, std::string_view root_name, listing& list, const listing_progress& progress)
      : root_(root), root_name_(root_name), list_(list), progress_(progress) {}

  /// Adds all pictures below root/`folder`, a direct child of the root, sorted by path.
  result<void> take_class(const std::string& folder, std::uint32_t label, folder_identity root) {
    const std::size_t begin = list_.files.size();
    visited_.assign(1, {root, no_parent});
    pending_.push_back({folder, 0});
    while (!pending_.empty()) {
      const pending next = std::move(pending_.back());
      pending_.pop_back();
      if (auto walked = take_folder(next.path, next.parent, label); !walked) return walked;
    }
    std::sort(
        list_.files.begin() + static_cast<std::ptrdiff_t>(begin), list_.files.end(),
        [this](const listed_file& a, const listed_file& b) { return list_.name_of(a) < list_.name_of(b); });
    return {};
  }

  void take_file(std::string_view folder, const folder_entry& entry, std::uint32_t label) {
    list_.add(fmt::format("{}{}{}", folder, folder.empty() ? "" : "/", entry.name), entry.size).label = label;
    if (progress_ && list_.files.size() % progress_step == 0) progress_(list_.files.size());
  }

  void skip(const skipped_files& more) {
    for (const auto& [ending, count] : more) skipped_[ending] += count;
  }

  [[nodiscard]] const skipped_files& skipped() const noexcept { return skipped_; }
  [[nodiscard]] std::uint64_t loops() const noexcept { return loops_; }
  [[nodiscard]] const std::string& first_loop() const noexcept { return first_loop_; }

 private:
  struct pending {
    std::string path;
    std::size_t parent;
  };
  struct visited {
    folder_identity identity;
    std::size_t parent;
  };

  result<void> take_folder(const std::string& path, std::size_t parent, std::uint32_t label) {
    const std::string shown = std::string(root_name_) + "/" + path;
    auto opened = open_folder(root_, path, shown);
    if (!opened) return tl::unexpected(std::move(opened.error()));
    auto contents = read_folder(std::move(*opened), shown, is_picture_name, unread_picture_ending);
    if (!contents) return tl::unexpected(std::move(contents.error()));
    for (std::size_t up = parent; up != no_parent; up = visited_[up].parent) {
      if (visited_[up].identity != contents->identity) continue;
      if (loops_++ == 0) first_loop_ = path;
      return {};
    }
    skip(contents->skipped);
    visited_.push_back({contents->identity, parent});
    const std::size_t self = visited_.size() - 1;
    for (const folder_entry& entry : contents->entries) {
      if (entry.kind == entry_kind::folder) {
        pending_.push_back({path + "/" + entry.name, self});
      } else {
        take_file(path, entry, label);
      }
    }
    return {};
  }

  int root_;
  std::string_view root_name_;
  listing& list_;
  const listing_progress& progress_;
  std::vector<visited> visited_;
  std::vector<pending> pending_;
  skipped_files skipped_;
  std::uint64_t loops_ = 0;
  std::string first_loop_;
};

constexpr file_kind picture_files{
    .one = "picture", .many = "pictures", .text = "*.jpg, *.jpeg, *.png, *.webp", .belongs = is_picture_name};

bool is_picture_list(std::string_view path) noexcept {
  return ends_with_any_case(path, ".txt");
}

/// Files that were found but are not part of the listing.
struct other_finds {
  std::uint64_t beside = 0;  ///< pictures next to class folders
  skipped_files skipped;
};

result<listing> finish_pictures(listing list, const std::string& path, const other_finds& others, const listing_progress& progress) {
  const std::uint64_t classes = list.classes.size();
  if (classes == 0) list.classes.emplace_back(".");
  if (classes > 0 && others.beside > 0) {
    list.notices.push_back(fmt::format(
        "{} picture{} directly in '{}' {} ignored: only pictures in class folders are read",
        others.beside, others.beside == 1 ? "" : "s", printable(path), others.beside == 1 ? "is" : "are"));
  }
  const std::string skipped = skipped_text(others.skipped);
  if (!skipped.empty()) list.notices.push_back(skipped + " (JPEG, PNG and WebP are read)");
  list.samples = list.files.size();
  if (list.samples == 0) {
    return refuse(errc::dataset,
                  "no pictures in '{}': {}looked for names that end in .jpg, .jpeg, .png or .webp and do not "
                  "begin with a dot{}{}",
                  printable(path),
                  classes > 0 ? fmt::format("went through {} and ", counted(classes, "class folder")) : "",
                  skipped.empty() ? "" : "; ", skipped);
  }
  list.fingerprint = fingerprint_of(list);
  if (progress) progress(list.samples);
  return list;
}

/// The folder that decides a picture's class; empty if the picture is in no folder.
std::string_view class_folder(std::string_view name) noexcept {
  const std::size_t slash = name.find('/');
  return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash);
}

/// Numbers the classes in byte order.
void set_labels(listing& list, const std::set<std::string, std::less<>>& classes) {
  list.classes.assign(classes.begin(), classes.end());
  for (listed_file& file : list.files) {
    const auto found = std::ranges::lower_bound(list.classes, class_folder(list.name_of(file)));
    file.label = classes.empty() ? 0 : static_cast<std::uint32_t>(found - list.classes.begin());
  }
}

bool is_hidden(std::string_view name) noexcept {
  return name.starts_with('.') || name.find("/.") != std::string_view::npos;
}

/// Works like list_image_folder: an object's key is treated as the path of a file.
result<listing> list_objects(const std::string& path, const store_options& options, const listing_progress& progress) {
  constexpr std::uint64_t pictures_max = 100'000'000;
  const std::string folder = folder_of_pictures(path);
  const auto place = parse_url(folder + "/");
  if (!place) return tl::unexpected(place.error());
  if (place->scheme != "s3")
    return refuse(errc::dataset,
                  "'{}' is on an HTTP server, which does not list its files: name the pictures in a .txt file and set "
                  "[dataset] path to that",
                  printable(path));
  if (folder.size() + (path.ends_with('/') ? 1 : 0) != path.size())
    return refuse(errc::dataset,
                  "'{}' is a picture or a pattern, but type \"image-folder\" needs a folder of pictures, or a .txt file that "
                  "names them",
                  printable(path));
  const auto store = object_store::open(options);
  if (!store) return tl::unexpected(store.error());
  const std::size_t name_at = place->path.size() - 1;  // keys do not begin with a slash
  other_finds others;
  std::set<std::string, std::less<>> classes;
  auto objects = (*store)->list(folder + "/", listing_depth::everything_below, pictures_max, [&](std::string_view key) {
    const std::string_view name = key.substr(std::min(name_at, key.size()));
    if (name.empty() || is_hidden(name)) return false;
    if (const std::string_view one = class_folder(name); !one.empty() && !classes.contains(one)) classes.emplace(one);
    if (is_picture_name(name)) return true;
    if (const std::string_view ending = unread_picture_ending(name); !ending.empty()) ++others.skipped[std::string(ending)];
    return false;
  });
  if (!objects) return tl::unexpected(std::move(objects.error()));
  listing list;
  list.of_objects = true;
  for (const listed_object& one : *objects) {
    const std::string_view name = std::string_view(one.key).substr(name_at);
    if (!classes.empty() && class_folder(name).empty())
      ++others.beside;
    else
      list.add(name, one.bytes, one.tag);
  }
  set_labels(list, classes);
  // A store sorts by whole keys, so "a-b/1.jpg" comes before "a/1.jpg".
  std::ranges::stable_sort(list.files, {}, &listed_file::label);
  return finish_pictures(std::move(list), path, others, progress);
}

result<listing> list_named(const std::string& path, const store_options& options, const listing_progress& progress) {
  auto found = find_files(path, picture_files, options);
  if (!found) return tl::unexpected(std::move(found.error()));
  listing list;
  list.of_objects = found->store != nullptr;
  std::set<std::string, std::less<>> classes;
  for (std::size_t i = 0; i < found->names.size(); ++i) {
    const std::string& name = found->names[i];
    if (name.starts_with('/') || is_url(name))
      return refuse(errc::dataset, "the list '{}' names '{}': names must be relative to the list, because a picture's first "
                                   "folder is its class",
                    printable(path), printable(name));
    if (!is_picture_name(name))
      return refuse(errc::dataset, "the list '{}' names '{}', which is not a picture: names of pictures end in .jpg, .jpeg, .png or .webp "
                                   "and do not begin with a dot",
                    printable(path), printable(name));
    if (const std::string_view one = class_folder(name); !one.empty()) classes.emplace(one);
    if (found->store) {
      list.add(name, found->facts[i].bytes, found->facts[i].tag);
      continue;
    }
    struct ::stat facts {};
    if (::stat(found->path(i).c_str(), &facts) != 0)
      return refuse_os(errc::io, errno, fmt::format("the picture '{}' of the list cannot be examined", printable(found->path(i))));
    list.add(name, static_cast<std::uint64_t>(facts.st_size));
  }
  other_finds others;
  if (!classes.empty())
    others.beside = std::erase_if(list.files, [&](const listed_file& file) { return class_folder(list.name_of(file)).empty(); });
  set_labels(list, classes);
  return finish_pictures(std::move(list), path, others, progress);
}

result<unique_fd> open_root(const std::string& path) {
  if (path.empty())
    return refuse(errc::dataset, "no path is given: set [dataset] path to a folder of pictures");
  unique_fd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (root) return root;
  const int os_code = errno;
  if (os_code == ENOENT)
    return refuse(errc::dataset, "the dataset folder '{}' does not exist", printable(path));
  if (os_code == ENOTDIR)
    return refuse(errc::dataset, "'{}' is not a folder: a dataset of type image-folder needs a folder",
                  printable(path));
  return refuse_os(errc::io, os_code,
                   fmt::format("the dataset folder '{}' cannot be opened", printable(path)));
}

}  // namespace

result<listing> list_image_folder(const std::string& path, const listing_progress& progress) {
  auto root = open_root(path);
  if (!root) return tl::unexpected(std::move(root.error()));
  unique_fd again(::fcntl(root->get(), F_DUPFD_CLOEXEC, 0));
  if (!again) return refuse_os(errc::io, errno, "duplicating a descriptor");
  auto top = read_folder(std::move(again), path, is_picture_name, unread_picture_ending);
  if (!top) return tl::unexpected(std::move(top.error()));

  listing list;
  list.type = dataset_type::image_folder;
  const auto is_class = [](const folder_entry& entry) { return entry.kind == entry_kind::folder; };
  const auto classes = static_cast<std::uint64_t>(std::ranges::count_if(top->entries, is_class));
  picture_walk walk(root->get(), path, list, progress);
  walk.skip(top->skipped);
  for (const folder_entry& entry : top->entries) {
    if (!is_class(entry)) {
      if (classes == 0) walk.take_file("", entry, 0);
      continue;
    }
    list.classes.push_back(entry.name);
    const auto label = static_cast<std::uint32_t>(list.classes.size() - 1);
    if (auto taken = walk.take_class(entry.name, label, top->identity); !taken) {
      return tl::unexpected(std::move(taken.error()));
    }
  }
  if (walk.loops() > 0) {
    list.notices.push_back(fmt::format(
        "not following {} linked folder{} back into the tree; the first one is '{}'", walk.loops(),
        walk.loops() == 1 ? " that leads" : "s that lead", printable(walk.first_loop())));
  }
  return finish_pictures(std::move(list), path, {top->entries.size() - classes, walk.skipped()}, progress);
}

std::string folder_of_pictures(const std::string& path) {
  return is_url(path) || is_picture_list(path) ? folder_of_files(path, picture_files) : path;
}

result<listing> list_pictures(const std::string& path, const listing_progress& progress, const store_options& options) {
  std::error_code none;
  if (is_picture_list(path) && !std::filesystem::is_directory(path, none)) return list_named(path, options, progress);
  return is_url(path) ? list_objects(path, options, progress) : list_image_folder(path, progress);
}

}  // namespace penstock
