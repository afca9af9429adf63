#include "runtime/dataset/arrays/arrays_dataset.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace penstock {

arrays_dataset::arrays_dataset(array_index index, std::string path, std::shared_ptr<object_store> store)
    : index_(std::move(index)), path_(std::move(path)), files_(std::move(store), file_check::size_when_opened) {}

std::shared_ptr<readable> arrays_dataset::file(std::size_t array) {
  return files_.file(array, [&]() -> pooled_file {
    const indexed_array& facts = index_.arrays()[array];
    return {path_of_array(path_, facts.file), facts.file_bytes, 0, std::string(facts.tag)};
  });
}

void arrays_dataset::expect(std::span<const std::uint64_t> samples) {
  if (!files_.is_remote()) return;
  for (std::size_t i = 0; i < index_.arrays().size(); ++i) {
    const indexed_array& array = index_.arrays()[i];
    if (array.in_index) continue;
    const std::uint64_t bytes = bytes_of(index_.description().tensors[i]);
    std::vector<byte_range> ranges;
    for (const std::uint64_t sample : samples) ranges.push_back({array.data_at + sample * bytes, bytes});
    file(i)->expect(std::move(ranges));
  }
}

void arrays_dataset::load(const sample_request& request, const sample_slot& slot) {
  const stage_range range("read");
  const timed_read timed;
  for (std::size_t i = 0; i < index_.arrays().size(); ++i) {
    const indexed_array& array = index_.arrays()[i];
    const auto into = slot.bytes(i);
    if (array.in_index) {
      std::ranges::copy(index_.row(i, request.index), into.begin());
    } else if (auto ok = file(i)->read(array.data_at + request.index * into.size(), into); !ok) {
      ok.error().message = fmt::format("the file of '{}' {}", array.tensor, ok.error().message);
      throw_failed(std::move(ok.error()));
    }
  }
}

std::string arrays_dataset::name_of(std::uint64_t index) const {
  const indexed_array& first = index_.arrays().front();
  const std::string file =
      first.file.empty() ? std::filesystem::path(path_).filename().string() : std::string(first.file);
  return fmt::format("{}[{}]", printable(file), index);
}

}  // namespace penstock
