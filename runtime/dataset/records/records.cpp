#include "runtime/dataset/records/records.hpp"

#include "runtime/base/dataset_type.hpp"
#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/listing/found_files.hpp"

#include <algorithm>
#include <map>

namespace penstock {
namespace {

tensor_spec spec_of(const index_view& index) {
  return {"data", index.element(), index.shape(), tensor_role::data};
}

}  // namespace

// Does not compare sizes, so a truncated file fails only the samples after the cut.
record_dataset::record_dataset(index_view index, const std::string& path, std::shared_ptr<object_store> store)
    : index_(std::move(index)), folder_(folder_of_records(path, index_.type())), files_(std::move(store), file_check::none) {
  record_bytes_ = bytes_of(spec_of(index_));
  ends_.reserve(index_.files());
  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < index_.files(); ++i) {
    end += (index_.size_of_file(i) - index_.data_at(i)) / record_bytes_;
    ends_.push_back(end);
  }
}

dataset_description record_dataset::describe(const index_view& index) {
  return {std::string(penstock::name_of(index.type())),
          index.samples(),
          {spec_of(index)},
          std::string(index.fingerprint())};
}

dataset_description record_dataset::describe() {
  return describe(index_);
}

record_dataset::place record_dataset::place_of(std::uint64_t index) const {
  const auto file = static_cast<std::uint64_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  return {file, index - (file == 0 ? 0 : ends_[file - 1])};
}

std::uint64_t record_dataset::offset_of(const place& where) const {
  return index_.data_at(where.file) + where.record * record_bytes_;
}

std::shared_ptr<readable> record_dataset::file(std::uint64_t file) {
  return files_.file(file, [&]() -> pooled_file {
    return {path_of_file(folder_, index_.name(file)), index_.size_of_file(file), 0, std::string(index_.tag(file))};
  });
}

void record_dataset::expect(std::span<const std::uint64_t> samples) {
  if (!files_.is_remote()) return;
  std::map<std::uint64_t, std::vector<byte_range>> by_file;
  for (const std::uint64_t sample : samples) {
    const place where = place_of(sample);
    by_file[where.file].push_back({offset_of(where), record_bytes_});
  }
  for (auto& [number, ranges] : by_file) file(number)->expect(std::move(ranges));
}

void record_dataset::load(const sample_request& request, const sample_slot& slot) {
  const stage_range range("read");
  const timed_read timed;
  const place where = place_of(request.index);
  if (auto ok = file(where.file)->read(offset_of(where), slot.bytes(0)); !ok) throw_failed(std::move(ok.error()));
}

std::string record_dataset::name_of(std::uint64_t index) const {
  const place where = place_of(index);
  return fmt::format("{}[{}]", printable(index_.name(where.file)), where.record);
}

}  // namespace penstock
