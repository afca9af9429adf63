#include "runtime/base/layout.hpp"

#include "runtime/base/units.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock {
namespace {

// 1 TiB: larger than any host, and small enough that sums of sizes do not overflow.
constexpr std::uint64_t batch_bytes_max = std::uint64_t{1} << 40;

result<std::uint64_t> checked_row_bytes(const tensor_spec& spec) {
  std::uint64_t bytes = size_of(spec.type);
  for (const std::uint32_t extent : spec.shape) {
    if (extent == 0) return refuse(errc::dataset, "tensor '{}' has a dimension of 0", spec.name);
    if (bytes > batch_bytes_max / extent)
      return refuse(errc::dataset, "a sample of tensor '{}' is too large", spec.name);
    bytes *= extent;
  }
  return bytes;
}

}  // namespace

result<batch_layout> lay_out(std::span<const tensor_spec> tensors, std::uint32_t batch_size) {
  if (tensors.empty()) return refuse(errc::dataset, "the dataset describes no tensors");
  if (batch_size == 0) return refuse(errc::dataset, "a batch of 0 samples cannot be laid out");
  batch_layout layout;
  layout.rows_max = batch_size;
  layout.described = tensors.size();
  std::vector<tensor_spec> all(tensors.begin(), tensors.end());
  for (const tensor_spec& spec : tensors) {
    if (spec.length == length_rule::exact) continue;
    if (spec.shape.empty() || spec.role != tensor_role::data) {
      return refuse(errc::dataset,
                    "tensor '{}' cannot have lengths: only data tensors with at least one axis can",
                    spec.name);
    }
    all.push_back({spec.name + "_length", dtype::int64, {}, tensor_role::data, length_rule::exact});
  }
  for (const tensor_spec& spec : all) {
    if (spec.name.empty()) return refuse(errc::dataset, "a tensor of the dataset has no name");
    if (layout.index_of(spec.name)) return refuse(errc::dataset, "two tensors are named '{}'", spec.name);
    if (spec.role == tensor_role::image && (spec.type != dtype::uint8 || spec.shape.size() != 3)) {
      return refuse(errc::dataset, "image tensor '{}' is not uint8 [height, width, channels]", spec.name);
    }
    auto row = checked_row_bytes(spec);
    if (!row) return tl::unexpected(std::move(row.error()));
    if (*row > batch_bytes_max / batch_size) {
      return refuse(errc::dataset, "a batch of {} samples, each with {} in tensor '{}', is larger than {}",
                    batch_size, bytes_for_people(*row), spec.name, bytes_for_people(batch_bytes_max));
    }
    layout.tensors.push_back({spec, *row, 0});
  }
  std::size_t lengths = layout.described;
  for (tensor_place& place : layout.tensors) {
    if (place.spec.length != length_rule::exact) place.lengths = lengths++;
  }
  // Small rows come first. Then nearly all of the unused space of a short batch is after its
  // last used byte. Encoded pictures come last, because they are not copied with the others.
  std::vector<std::size_t> order(layout.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    const tensor_place& place = layout.tensors[i];
    return std::pair(place.spec.role == tensor_role::encoded, place.row_bytes);
  });
  for (const std::size_t i : order) {
    layout.tensors[i].offset = layout.bytes;
    layout.bytes = round_up(layout.bytes + layout.tensors[i].row_bytes * batch_size, layout_alignment);
  }
  return layout;
}

std::uint64_t batch_layout::used_bytes(std::uint32_t rows) const noexcept {
  std::uint64_t end = 0;
  if (rows == 0) return end;
  for (const tensor_place& place : tensors) end = std::max(end, place.offset + place.row_bytes * rows);
  return end;
}

std::uint64_t batch_layout::payload_bytes(std::uint32_t rows) const noexcept {
  std::uint64_t sum = 0;
  for (const tensor_place& place : tensors) {
    if (place.spec.role != tensor_role::record && place.spec.role != tensor_role::encoded)
      sum += place.row_bytes * rows;
  }
  return sum;
}

std::optional<std::size_t> batch_layout::index_of(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].spec.name == name) return i;
  }
  return std::nullopt;
}

}  // namespace penstock
