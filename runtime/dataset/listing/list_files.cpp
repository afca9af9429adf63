// The listings of npy and raw datasets.
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/in_parallel.hpp"
#include "runtime/dataset/listing/found_files.hpp"
#include "runtime/dataset/listing/listing.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/records/npy_header.hpp"

#include <fmt/format.h>

#include <functional>

namespace penstock {
namespace {

constexpr file_kind npy_files{.one = "array",
                              .many = "arrays",
                              .text = "*.npy",
                              .belongs = [](std::string_view name) { return ends_with_any_case(name, ".npy"); }};
constexpr file_kind raw_files{
    .one = "file", .many = "files", .text = "*", .belongs = [](std::string_view) { return true; }, .may_be_listed = false};

const file_kind& kind_of(dataset_type type) noexcept {
  return type == dataset_type::npy ? npy_files : raw_files;
}

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
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// `header_of` returns what a file contains, or a refusal without the file's name. Called on several threads.
result<listing> list_records(dataset_type type, const std::string& path, const store_options& options,
                             const std::function<result<npy_header>(readable&)>& header_of,
                             const listing_progress& progress) {
  const auto found = find_files(path, kind_of(type), options);
  if (!found) return tl::unexpected(found.error());
  listing list;
  list.type = type;
  list.of_objects = found->store != nullptr;
  list.notices = found->notices;
  std::vector<npy_header> headers(found->names.size());
  std::vector<std::uint64_t> sizes(headers.size());
  const auto examine = [&](std::size_t i) -> result<void> {
    auto opened = found->open(i);
    if (!opened) return about_file(found->path(i), std::move(opened.error()));
    sizes[i] = (*opened)->bytes();
    auto header = header_of(**opened);
    if (!header) return about_file(found->path(i), std::move(header.error()));
    headers[i] = std::move(*header);
    return {};
  };
  if (auto ok = in_parallel(headers.size(), found->store ? requests_at_once : 1, examine); !ok)
    return tl::unexpected(std::move(ok.error()));
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const npy_header& header = headers[i];
    std::vector<std::uint32_t> shape(header.shape.begin() + 1, header.shape.end());
    if (i == 0) {
      list.element = header.element;
      list.shape = std::move(shape);
    } else if (header.element != list.element || shape != list.shape) {
      return refuse(errc::dataset, "'{}' holds samples of {} {}, but the files before it hold samples of {} {}",
                    printable(found->path(i)), name_of(header.element), shape_for_people(shape), name_of(list.element),
                    shape_for_people(list.shape));
    }
    list.add(found->names[i], sizes[i], found->store ? found->facts[i].tag : "").data_at = header.data_at;
    list.samples += header.shape[0];
  }
  if (list.samples == 0) return refuse(errc::dataset, "'{}' holds no samples", printable(path));
  list.fingerprint = fingerprint_of(list);
  if (progress) progress(list.samples);
  return list;
}

}  // namespace

std::string folder_of_records(const std::string& path, dataset_type type) {
  return folder_of_files(path, kind_of(type));
}

result<listing> list_npy(const std::string& path, const listing_progress& progress, const store_options& options) {
  return list_records(dataset_type::npy, path, options, read_npy_header, progress);
}

result<listing> list_raw(const std::string& path, const std::vector<std::uint32_t>& shape, dtype element,
                         const listing_progress& progress, const store_options& options) {
  if (shape.empty())
    return refuse(errc::dataset, "a raw dataset needs 'shape' and 'dtype' in [dataset]: those of one sample");
  auto record = record_bytes(shape, element);
  if (!record) return tl::unexpected(std::move(record.error()));
  const auto header_of = [&](readable& file) -> result<npy_header> {
    if (file.bytes() % *record != 0)
      return refuse(errc::dataset, "holds {} bytes, which is not a multiple of a sample's {}", file.bytes(), *record);
    npy_header header{element, {file.bytes() / *record}, 0};
    header.shape.insert(header.shape.end(), shape.begin(), shape.end());
    return header;
  };
  return list_records(dataset_type::raw, path, options, header_of, progress);
}

}  // namespace penstock
