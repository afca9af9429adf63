#include "runtime/dataset/tokens/token_files.hpp"

#include "runtime/base/text.hpp"
#include "runtime/dataset/in_parallel.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/local_file.hpp"
#include "runtime/dataset/records/npy_header.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>

namespace penstock {
namespace {

constexpr file_kind token_files{
    .one = "token file",
    .many = "token files",
    .text = "*.bin, *.npy",
    .belongs = [](std::string_view name) { return ends_with_any_case(name, ".bin") || ends_with_any_case(name, ".npy"); },
    .is_beside = [](std::string_view name) { return ends_with_any_case(name, ".idx"); }};

bool is_whole_number(dtype type) noexcept {
  return type < dtype::float16;
}

result<dtype> examine_npy(readable& opened, token_file& file) {
  const auto header = read_npy_header(opened);
  if (!header) return tl::unexpected(header.error());
  if (header->shape.size() != 1)
    return refuse(errc::dataset,
                  "is an array of {} axes, but tokens need an array of one axis: save array.reshape(-1)",
                  header->shape.size());
  if (!is_whole_number(header->element))
    return refuse(errc::dataset, "holds {}, but token ids must be whole numbers", name_of(header->element));
  file.data_at = header->data_at;
  file.tokens = header->shape[0];
  return header->element;
}

result<dtype> examine_megatron(readable& opened, const std::string& path, token_file& file) {
  const auto index = megatron_index::open(reader_of(opened), opened.bytes(), file.bytes);
  if (!index) return refuse(index.error().code, "has an index, '{}', which {}", printable(path), index.error().message);
  file.index_bytes = opened.bytes();
  file.tokens = index->tokens();
  return index->element();
}

result<dtype> examine_flat(dtype flat, token_file& file) {
  if (flat == dtype::uint8)
    return refuse(errc::config,
                  "does not say what type its tokens have: set [dataset] dtype, \"uint16\" or \"uint32\"");
  if (file.bytes % size_of(flat) != 0)
    return refuse(errc::dataset, "has {} bytes, which is not a multiple of the {} of a {}", file.bytes, size_of(flat),
                  name_of(flat));
  file.tokens = file.bytes / size_of(flat);
  return flat;
}

/// For each file, its index object, if there is one. The listing
/// has returned most of these objects; the others are requested.
result<std::vector<std::optional<object_facts>>> indexes_of_objects(const found_files& found) {
  std::vector<std::optional<object_facts>> all(found.names.size());
  std::vector<std::size_t> asked;
  std::vector<std::string> paths;
  // A listing does not include subfolders.
  const auto was_listed = [&](const std::string& path) {
    return std::ranges::any_of(found.listed, [&](const std::string& begin) {
      return path.starts_with(begin) && path.find('/', begin.size()) == std::string::npos;
    });
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (ends_with_any_case(found.names[i], ".npy")) continue;
    const std::string path = index_path_of(found.path(i));
    if (const auto known = found.beside.find(path); known != found.beside.end()) {
      all[i] = known->second;
    } else if (!was_listed(path)) {
      asked.push_back(i);
      paths.push_back(path);
    }
  }
  auto facts = found.store->examine(paths, missing_objects::allowed);
  if (!facts) return tl::unexpected(std::move(facts.error()));
  for (std::size_t i = 0; i < asked.size(); ++i)
    if ((*facts)[i].exists) all[asked[i]] = std::move((*facts)[i]);
  return all;
}

/// Opens files and returns their facts.
class token_file_examiner {
 public:
  token_file_examiner(const found_files& found, dtype flat) : found_(found), flat_(flat) {}

  result<void> look_for_indexes() {
    if (!found_.store) return {};
    auto all = indexes_of_objects(found_);
    if (!all) return tl::unexpected(std::move(all.error()));
    indexes_ = std::move(*all);
    return {};
  }

  result<dtype> examine(std::size_t i, token_file& file) const {
    const std::string path = found_.path(i);
    const auto opened = found_.open(i);
    if (!opened) return about_file(path, opened.error());
    file.name = found_.names[i];
    file.bytes = (*opened)->bytes();
    if (found_.store) file.tag = found_.facts[i].tag;
    auto element = element_of(i, path, **opened, file);
    if (!element) return about_file(path, std::move(element.error()));
    if (file.tokens == 0) return refuse(errc::dataset, "'{}' holds no tokens", printable(path));
    return element;
  }

 private:
  result<dtype> element_of(std::size_t i, const std::string& path, readable& opened, token_file& file) const {
    if (ends_with_any_case(path, ".npy")) return examine_npy(opened, file);
    const std::string index_path = index_path_of(path);
    if (ends_with_any_case(path, ".idx")) return refuse(errc::dataset, "is the index of a .bin file: name the .bin file instead");
    if (found_.store) {
      if (!indexes_[i]) return examine_flat(flat_, file);
      file.index_tag = indexes_[i]->tag;
      return examine_megatron(*found_.store->object(index_path, *indexes_[i]), index_path, file);
    }
    const auto index = local_file::open(index_path);
    if (index) return examine_megatron(**index, index_path, file);
    if (index.error().os_code == ENOENT) return examine_flat(flat_, file);
    return refuse(index.error().code, "has an index, '{}', which {}", printable(index_path), index.error().message);
  }

  const found_files& found_;
  dtype flat_;
  std::vector<std::optional<object_facts>> indexes_;  ///< the index objects, by number of the file
};

}  // namespace

std::string folder_of_token_files(const std::string& path) {
  return folder_of_files(path, token_files);
}

std::string index_path_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::size_t slash = path.rfind('/');
  const bool has_extension = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (has_extension ? path.substr(0, dot) : path) + ".idx";
}

std::shared_ptr<readable> token_file_list::open(const token_file& file) const {
  const std::string path = path_of_file(folder, file.name);
  if (store) return store->object(path, {file.bytes, file.tag});
  return std::make_shared<local_file>(path, file.bytes, 0, file_check::size_when_opened);
}

std::shared_ptr<readable> token_file_list::open_index(const token_file& file) const {
  const std::string path = index_path_of(path_of_file(folder, file.name));
  if (store) return store->object(path, {file.index_bytes, file.index_tag});
  return std::make_shared<local_file>(path, file.index_bytes, 0, file_check::size_when_opened);
}

result<token_file_list> list_token_files(const dataset_config& dataset, const store_options& options) {
  auto found = find_files(dataset.path, token_files, options);
  if (!found) return tl::unexpected(std::move(found.error()));
  token_file_examiner examiner(*found, dataset.dtype);
  if (auto ok = examiner.look_for_indexes(); !ok) return tl::unexpected(std::move(ok.error()));
  token_file_list list;
  list.files.resize(found->names.size());
  std::vector<dtype> elements(list.files.size());
  const auto examine = [&](std::size_t i) -> result<void> {
    auto element = examiner.examine(i, list.files[i]);
    if (!element) return tl::unexpected(std::move(element.error()));
    elements[i] = *element;
    return {};
  };
  if (auto ok = in_parallel(list.files.size(), found->store ? requests_at_once : 1, examine); !ok)
    return tl::unexpected(std::move(ok.error()));
  list.element = elements.front();
  for (std::size_t i = 0; i < list.files.size(); ++i) {
    if (elements[i] != list.element)
      return refuse(errc::dataset, "'{}' holds tokens of type {}, but the files before it hold type {}",
                    printable(found->path(i)), name_of(elements[i]), name_of(list.element));
    list.tokens += list.files[i].tokens;
  }
  list.folder = std::move(found->folder);
  list.notices = std::move(found->notices);
  list.store = std::move(found->store);
  return list;
}

}  // namespace penstock
