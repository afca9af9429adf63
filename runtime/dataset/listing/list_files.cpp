// The listings of npy and raw datasets: one file, or the files directly in a folder.
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/listing/folder.hpp"
#include "runtime/dataset/listing/listing.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/records/npy_header.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace penstock {
namespace {

/// Examines one open file of known size: counts its samples, or refuses it without naming it.
using file_taker = std::function<result<void>(listing& list, int fd, listed_file& file)>;

tl::unexpected<failure> about(std::string_view name, failure why) {
  why.message = fmt::format("'{}' {}", printable(name), why.message);
  return tl::unexpected(std::move(why));
}

result<void> take_file(listing& list, int folder, const std::string& name, std::string_view shown,
                       const file_taker& take) {
  const unique_fd fd(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return about(shown, os_failure(errc::io, errno, "cannot be opened"));
  struct ::stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return about(shown, os_failure(errc::io, errno, "cannot be examined"));
  if (!S_ISREG(facts.st_mode)) {
    return about(shown, {errc::dataset, fmt::format("is {}, not a file", kind_of_file(facts.st_mode)), 0});
  }
  listed_file file;
  file.size = static_cast<std::uint64_t>(facts.st_size);
  if (auto taken = take(list, fd.get(), file); !taken) return about(shown, std::move(taken.error()));
  const std::size_t slash = name.find_last_of('/');
  const std::string_view base = std::string_view(name).substr(slash == std::string::npos ? 0 : slash + 1);
  file.name_at = list.pool.size();
  file.name_size = static_cast<std::uint32_t>(base.size());
  list.pool += base;
  list.files.push_back(file);
  return {};
}

/// One file or a folder of files. `what` names the type in a refusal, `wanted` selects the files of a
/// folder.
result<listing> list_files(listing list, const std::string& path, std::string_view wanted_text,
                           bool (*wanted)(std::string_view), const file_taker& take,
                           const listing_progress& progress) {
  const std::string_view type = name_of(list.type);
  if (path.empty())
    return refuse(errc::dataset, "no path is given: set [dataset] path to a file or folder of type {}", type);
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    if (errno == ENOENT) return refuse(errc::dataset, "the dataset '{}' does not exist", printable(path));
    return refuse_os(errc::io, errno, fmt::format("the dataset '{}' cannot be examined", printable(path)));
  }
  if (S_ISDIR(facts.st_mode)) {
    auto opened = open_folder(AT_FDCWD, path, path);
    if (!opened) return tl::unexpected(std::move(opened.error()));
    const unique_fd again(::fcntl(opened->get(), F_DUPFD_CLOEXEC, 0));
    if (!again) return refuse_os(errc::io, errno, "duplicating a descriptor");
    auto contents = read_folder(std::move(*opened), path, wanted);
    if (!contents) return tl::unexpected(std::move(contents.error()));
    std::size_t folders = 0;
    for (const folder_entry& entry : contents->entries) {
      if (entry.kind == entry_kind::folder) {
        ++folders;
        continue;
      }
      if (auto taken = take_file(list, again.get(), entry.name, path + "/" + entry.name, take); !taken) {
        return tl::unexpected(std::move(taken.error()));
      }
      if (progress) progress(list.samples);
    }
    if (folders > 0) {
      list.notices.push_back(fmt::format("{} folder{} in '{}' {} ignored: {} datasets have no folders inside",
                                         folders, folders == 1 ? "" : "s", printable(path),
                                         folders == 1 ? "is" : "are", type));
    }
    if (list.files.empty()) return refuse(errc::dataset, "no {} in '{}'", wanted_text, printable(path));
  } else if (auto taken = take_file(list, AT_FDCWD, path, path, take); !taken) {
    return tl::unexpected(std::move(taken.error()));
  }
  if (list.samples == 0) return refuse(errc::dataset, "'{}' holds no samples", printable(path));
  list.fingerprint = fingerprint_of(list);
  if (progress) progress(list.samples);
  return list;
}

constexpr std::uint64_t record_bytes_max = std::uint64_t{1} << 40U;

result<std::uint64_t> record_bytes(const std::vector<std::uint32_t>& shape, dtype element) {
  std::uint64_t bytes = size_of(element);
  for (const std::uint32_t side : shape) {
    if (side == 0) return refuse(errc::dataset, "a sample with a dimension of 0 has no elements");
    if (bytes > record_bytes_max / side) return refuse(errc::dataset, "a sample is larger than 1 TiB");
    bytes *= side;
  }
  return bytes;
}

std::string shape_for_people(const std::vector<std::uint32_t>& shape) {
  std::string text;
  for (const std::uint32_t side : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", side);
  return "[" + text + "]";
}

}  // namespace

result<listing> list_npy(const std::string& path, const listing_progress& progress) {
  std::vector<std::byte> start(npy_header_max);
  const auto take = [&start](listing& list, int fd, listed_file& file) -> result<void> {
    const ssize_t got = ::pread(fd, start.data(), start.size(), 0);
    if (got < 0) return refuse_os(errc::io, errno, "cannot be read");
    auto header = parse_npy_header({start.data(), static_cast<std::size_t>(got)}, file.size);
    if (!header) return tl::unexpected(std::move(header.error()));
    const std::vector<std::uint32_t> shape(header->shape.begin() + 1, header->shape.end());
    if (list.files.empty()) {
      list.element = header->element;
      list.shape = shape;
    } else if (header->element != list.element || shape != list.shape) {
      return refuse(errc::dataset, "holds samples of {} {}, but the files before it hold samples of {} {}",
                    name_of(header->element), shape_for_people(shape), name_of(list.element),
                    shape_for_people(list.shape));
    }
    file.data_at = header->data_at;
    list.samples += header->shape[0];
    return {};
  };
  listing list;
  list.type = dataset_type::npy;
  return list_files(
      std::move(list), path, "names that end in .npy",
      [](std::string_view name) { return ends_with_any_case(name, ".npy"); }, take, progress);
}

result<listing> list_raw(const std::string& path, const std::vector<std::uint32_t>& shape, dtype element,
                         const listing_progress& progress) {
  if (shape.empty())
    return refuse(errc::dataset, "a raw dataset needs [dataset] shape and dtype of one sample");
  auto record = record_bytes(shape, element);
  if (!record) return tl::unexpected(std::move(record.error()));
  const auto take = [&record](listing& list, int, listed_file& file) -> result<void> {
    if (file.size % *record != 0) {
      return refuse(errc::dataset, "holds {} bytes, which is not a multiple of a sample's {}", file.size, *record);
    }
    list.samples += file.size / *record;
    return {};
  };
  listing list;
  list.type = dataset_type::raw;
  list.element = element;
  list.shape = shape;
  return list_files(
      std::move(list), path, "files", [](std::string_view) { return true; }, take, progress);
}

}  // namespace penstock
