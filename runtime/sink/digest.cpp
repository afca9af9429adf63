#include "runtime/sink/digest.hpp"

#include <bit>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace penstock::sink {
namespace {

static_assert(std::endian::native == std::endian::little, "digests hash memory as it lies");

class hasher {
 public:
  hasher() { XXH3_64bits_reset(&state_); }
  void add(const void* data, std::size_t bytes) {
    const std::uint64_t length = bytes;
    XXH3_64bits_update(&state_, &length, sizeof length);
    XXH3_64bits_update(&state_, data, bytes);
  }
  [[nodiscard]] std::uint64_t result() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

}  // namespace

std::uint64_t batch_digest(std::span<const std::uint64_t> samples, std::span<const tensor_view> tensors) {
  hasher hash;
  hash.add(samples.data(), samples.size_bytes());
  for (const tensor_view& t : tensors) {
    hash.add(t.name.data(), t.name.size());
    const std::string_view type = name_of(t.type);
    hash.add(type.data(), type.size());
    hash.add(t.shape.data(), t.shape.size() * sizeof(std::uint64_t));
    hash.add(t.data, t.bytes());
  }
  return hash.result();
}

}  // namespace penstock::sink
