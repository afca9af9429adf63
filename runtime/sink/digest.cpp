#include "runtime/sink/digest.hpp"

#include "runtime/base/xxh3.hpp"

#include <bit>

namespace penstock::sink {
namespace {

static_assert(std::endian::native == std::endian::little, "digests hash the bytes in memory as they are");

void add(xxh3& digest, const void* data, std::size_t bytes) {
  const std::uint64_t length = bytes;
  digest.add(std::as_bytes(std::span(&length, 1)));
  digest.add({static_cast<const std::byte*>(data), bytes});
}

}  // namespace

std::uint64_t batch_digest(std::span<const std::uint64_t> samples, std::span<const tensor_view> tensors) {
  xxh3 digest;
  add(digest, samples.data(), samples.size_bytes());
  for (const tensor_view& t : tensors) {
    add(digest, t.name.data(), t.name.size());
    const std::string_view type = name_of(t.type);
    add(digest, type.data(), type.size());
    add(digest, t.shape.data(), t.shape.size() * sizeof(std::uint64_t));
    add(digest, t.data, t.bytes());
  }
  return digest.value();
}

}  // namespace penstock::sink
