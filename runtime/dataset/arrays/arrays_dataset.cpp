#include "runtime/dataset/arrays/arrays_dataset.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace penstock {
arrays_dataset::arrays_dataset(array_index index, std::string path)
    : index_(std::move(index)), path_(std::move(path)), files_(index_.arrays().size()) {}

void arrays_dataset::fail(std::size_t array, failure why) const {
  why.message = fmt::format("the file of '{}' {}", index_.arrays()[array].tensor, why.message);
  throw_failed(std::move(why));
}

void arrays_dataset::read(std::size_t array, std::uint64_t at, std::span<std::byte> into) {
  const indexed_array& facts = index_.arrays()[array];
  unique_fd& file = files_[array];
  if (!file) {
    auto opened = open_listed(facts.file.empty() ? path_ : path_ + "/" + std::string(facts.file), facts.file_bytes);
    if (!opened) fail(array, std::move(opened.error()));
    file = std::move(*opened);
  }
  if (auto ok = read_exactly(file.get(), at, into); !ok) {
    file.reset();  // after ESTALE a new descriptor is needed
    fail(array, std::move(ok.error()));
  }
}

void arrays_dataset::load(const sample_request& request, const sample_slot& slot) {
  const stage_range range("read");
  const timed_read timed;
  for (std::size_t i = 0; i < index_.arrays().size(); ++i) {
    const indexed_array& array = index_.arrays()[i];
    const auto into = slot.bytes(i);
    if (array.in_index)
      std::ranges::copy(index_.row(i, request.index), into.begin());
    else
      read(i, array.data_at + request.index * into.size(), into);
  }
}

std::string arrays_dataset::name_of(std::uint64_t index) const {
  const indexed_array& first = index_.arrays().front();
  const std::string file =
      first.file.empty() ? std::filesystem::path(path_).filename().string() : std::string(first.file);
  return fmt::format("{}[{}]", printable(file), index);
}

}  // namespace penstock
