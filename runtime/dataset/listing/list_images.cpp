// The listing of an image folder: classes, then the pictures of each class at any depth.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/folder.hpp"
#include "runtime/dataset/listing/listing.hpp"
#include "runtime/dataset/listing/names.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace penstock {
namespace {

constexpr std::uint64_t progress_step = 4096;
constexpr std::size_t no_parent = static_cast<std::size_t>(-1);

/// Walks folders below one root and collects pictures.
class picture_walk {
 public:
  picture_walk(int root, std::string_view root_name, listing& list, const listing_progress& progress)
      : root_(root), root_name_(root_name), list_(list), progress_(progress) {}

  /// Everything below root/`folder`, whose ancestor is the root. Sorted by path at the end.
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
    listed_file file{list_.pool.size(), 0, label, entry.size, 0};
    list_.pool += folder;
    if (!folder.empty()) list_.pool += '/';
    list_.pool += entry.name;
    file.name_size = static_cast<std::uint32_t>(list_.pool.size() - file.name_at);
    list_.files.push_back(file);
    if (progress_ && list_.files.size() % progress_step == 0) progress_(list_.files.size());
  }

  void pass_over(const passed_over_files& more) {
    for (const auto& [ending, count] : more) passed_over_[ending] += count;
  }

  [[nodiscard]] const passed_over_files& passed_over() const noexcept { return passed_over_; }
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
    pass_over(contents->passed_over);
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
  passed_over_files passed_over_;
  std::uint64_t loops_ = 0;
  std::string first_loop_;
};

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
  walk.pass_over(top->passed_over);
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
  if (classes == 0) list.classes.emplace_back(".");
  if (const auto beside = top->entries.size() - classes; classes > 0 && beside > 0) {
    list.notices.push_back(fmt::format(
        "{} picture{} directly in '{}' {} ignored: only pictures in its folders, the classes, are read",
        beside, beside == 1 ? "" : "s", printable(path), beside == 1 ? "is" : "are"));
  }
  if (walk.loops() > 0) {
    list.notices.push_back(fmt::format(
        "not following {} linked folder{} back into the tree; the first one is '{}'", walk.loops(),
        walk.loops() == 1 ? " that leads" : "s that lead", printable(walk.first_loop())));
  }
  const std::string passed_over = passed_over_text(walk.passed_over());
  if (!passed_over.empty()) list.notices.push_back(passed_over + " (JPEG and PNG are read)");
  list.samples = list.files.size();
  if (list.samples == 0) {
    return refuse(errc::dataset,
                  "no pictures in '{}': {}looked for names that end in .jpg, .jpeg or .png and do not begin "
                  "with a dot{}{}",
                  printable(path),
                  classes > 0 ? fmt::format("went through {} and ", counted(classes, "class folder")) : "",
                  passed_over.empty() ? "" : "; ", passed_over);
  }
  list.fingerprint = fingerprint_of(list);
  if (progress) progress(list.samples);
  return list;
}

}  // namespace penstock
