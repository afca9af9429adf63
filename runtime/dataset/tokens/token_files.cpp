#include "runtime/dataset/tokens/token_files.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/listing/folder.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/listing/path_pattern.hpp"
#include "runtime/dataset/records/npy_header.hpp"

#include <algorithm>
#include <cerrno>
#include <unordered_set>

namespace penstock {
namespace {

constexpr std::uint64_t list_bytes_max = 256 * MiB;

bool is_token_list(std::string_view path) noexcept {
  return ends_with_any_case(path, ".txt");
}

std::string folder_of_file(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

tl::unexpected<failure> about_file(std::string_view path, failure why) {
  why.message = fmt::format("'{}' {}", printable(path), why.message);
  return tl::unexpected(std::move(why));
}

result<std::vector<std::string>> token_files_of_folder(const std::string& path,
                                                       std::vector<std::string>& notices) {
  auto paths = files_of_folder(path, "files", notices, [](std::string_view name) {
    return ends_with_any_case(name, ".bin") || ends_with_any_case(name, ".npy");
  });
  if (paths && paths->empty())
    return refuse(errc::dataset, "no files of tokens (*.bin, *.npy) in '{}'", printable(path));
  return paths;
}

result<std::vector<std::string>> files_of_list(const std::string& path) {
  file_reader reader;
  const auto bytes = reader.read(path, list_bytes_max);
  if (!bytes) return about_file(path, bytes.error());
  std::string_view rest(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const std::string folder = folder_of_file(path);
  std::vector<std::string> paths;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const std::string one = path_of_token_file(folder, line);
    if (!is_pattern(one)) {
      paths.push_back(one);
      continue;
    }
    auto found = paths_of_pattern(one, "token file");
    if (!found) return found;
    paths.insert(paths.end(), found->begin(), found->end());
  }
  if (paths.empty()) return refuse(errc::dataset, "the list '{}' contains no file names", printable(path));
  return paths;
}

result<std::vector<std::string>> paths_of_tokens(const std::string& path, std::vector<std::string>& notices) {
  if (path.empty())
    return refuse(errc::dataset, "no path is given: set [dataset] path to a file or folder of tokens, a list or a pattern");
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) return token_files_of_folder(folder_of_pattern(path), notices);
    if (is_token_list(path)) return files_of_list(path);
    return std::vector{path};
  }
  if (errno != ENOENT && errno != ENAMETOOLONG)
    return refuse_os(errc::io, errno, fmt::format("the dataset '{}' cannot be examined", printable(path)));
  if (!is_pattern(path)) return refuse(errc::dataset, "the dataset '{}' does not exist", printable(path));
  return paths_of_pattern(path, "token file");
}

bool is_whole_number(dtype type) noexcept {
  return type < dtype::float16;
}

/// Reads element and size of one open file.
class token_file_examiner {
 public:
  explicit token_file_examiner(dtype flat) : flat_(flat), start_(npy_header_max) {}

  result<dtype> examine(int fd, const std::string& path, token_file& file) {
    if (ends_with_any_case(path, ".npy")) return npy(fd, file);
    if (ends_with_any_case(path, ".idx"))
      return refuse(errc::dataset, "is the index of a .bin file: name the .bin file instead");
    const std::string index_path = index_path_of(path);
    const auto index = open_for_reading(index_path);
    if (index) return megatron(*index, index_path, file);
    if (index.error().os_code != ENOENT)
      return refuse(index.error().code, "has an index, '{}', which {}", printable(index_path), index.error().message);
    return flat(file);
  }

 private:
  result<dtype> npy(int fd, token_file& file) {
    const std::size_t length = static_cast<std::size_t>(std::min<std::uint64_t>(start_.size(), file.bytes));
    if (auto ok = read_exactly(fd, 0, std::span(start_).first(length)); !ok)
      return tl::unexpected(std::move(ok.error()));
    const auto header = parse_npy_header(std::span(start_).first(length), file.bytes);
    if (!header) return tl::unexpected(header.error());
    if (header->shape.size() != 1)
      return refuse(errc::dataset,
                    "is an array of {} axes, but tokens need an array of one axis: save array.reshape(-1)",
                    header->shape.size());
    if (!is_whole_number(header->element))
      return refuse(errc::dataset, "holds {}, but ids of tokens are whole numbers", name_of(header->element));
    file.data_at = header->data_at;
    file.tokens = header->shape[0];
    return header->element;
  }

  static result<dtype> megatron(const open_file& opened, const std::string& path, token_file& file) {
    const auto read = [&opened](std::uint64_t at, std::span<std::byte> into) {
      return read_exactly(opened.fd.get(), at, into);
    };
    const auto index = megatron_index::open(read, opened.bytes, file.bytes);
    if (!index)
      return refuse(index.error().code, "has an index, '{}', which {}", printable(path), index.error().message);
    file.index_bytes = opened.bytes;
    file.tokens = index->tokens();
    return index->element();
  }

  [[nodiscard]] result<dtype> flat(token_file& file) const {
    if (flat_ == dtype::uint8)
      return refuse(errc::config,
                    "does not say what type its tokens have: set [dataset] dtype, \"uint16\" or \"uint32\"");
    if (file.bytes % size_of(flat_) != 0)
      return refuse(errc::dataset, "has {} bytes, which is not a multiple of the {} of a {}", file.bytes,
                    size_of(flat_), name_of(flat_));
    file.tokens = file.bytes / size_of(flat_);
    return flat_;
  }

  dtype flat_;
  std::vector<std::byte> start_;
};

}  // namespace

std::string folder_of_token_files(const std::string& path) {
  struct ::stat facts {};
  if (is_token_list(path) && ::stat(path.c_str(), &facts) == 0 && !S_ISDIR(facts.st_mode)) return folder_of_file(path);
  return folder_of_pattern(path);
}

std::string path_of_token_file(const std::string& folder, std::string_view name) {
  return name.starts_with('/') ? std::string(name) : fmt::format("{}/{}", folder, name);
}

std::string index_path_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::size_t slash = path.rfind('/');
  const bool has_extension = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (has_extension ? path.substr(0, dot) : path) + ".idx";
}

result<token_file_list> list_token_files(const dataset_config& dataset) {
  token_file_list list;
  const auto paths = paths_of_tokens(dataset.path, list.notices);
  if (!paths) return tl::unexpected(paths.error());
  list.folder = folder_of_token_files(dataset.path);
  token_file_examiner examiner(dataset.dtype);
  std::unordered_set<std::string_view> seen;
  for (const std::string& path : *paths) {
    if (!seen.insert(path).second) return refuse(errc::dataset, "the file '{}' is listed twice", printable(path));
    token_file file;
    auto opened = open_for_reading(path);
    if (!opened) return about_file(path, std::move(opened.error()));
    file.bytes = opened->bytes;
    auto element = examiner.examine(opened->fd.get(), path, file);
    if (!element) return about_file(path, std::move(element.error()));
    if (file.tokens == 0) return refuse(errc::dataset, "'{}' holds no tokens", printable(path));
    if (list.files.empty()) {
      list.element = *element;
    } else if (*element != list.element) {
      return refuse(errc::dataset, "'{}' holds tokens of type {}, but the files before it hold type {}",
                    printable(path), name_of(*element), name_of(list.element));
    }
    const std::string below = list.folder + "/";
    file.name = path.starts_with(below) ? path.substr(below.size()) : path;
    list.tokens += file.tokens;
    list.files.push_back(std::move(file));
  }
  return list;
}

}  // namespace penstock
