// Indexes of Megatron's token files: any bytes are refused, or give documents that lie within the .bin, in order.
#include "runtime/dataset/tokens/megatron_index.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace penstock;

namespace {

void read_index(std::string_view bytes, std::uint64_t data_bytes) {
  const auto read = [bytes](std::uint64_t at, std::span<std::byte> into) -> result<void> {
    must(at <= bytes.size() && into.size() <= bytes.size() - at);
    std::memcpy(into.data(), bytes.data() + at, into.size());
    return {};
  };
  const auto index = megatron_index::open(read, bytes.size(), data_bytes);
  if (!index) return;
  must(index->tokens() * size_of(index->element()) == data_bytes);
  for (std::uint64_t i = 0; i <= std::min<std::uint64_t>(index->documents(), 100); ++i)
    if (const auto begin = index->begin_of(i)) must(*begin <= index->tokens());
  std::vector<std::uint64_t> begins;
  if (index->begins_between(0, index->tokens(), begins)) {
    must(std::ranges::is_sorted(begins));
    must(begins.empty() || (begins.front() > 0 && begins.back() < index->tokens()));
  }
  std::vector<std::uint32_t> lengths;
  if (index->all_lengths(lengths))
    must(std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}) == index->tokens());
}

template <class T>
void append(std::string& bytes, std::initializer_list<T> numbers) {
  for (const T number : numbers) bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const std::uint64_t data_bytes : {std::uint64_t{14}, std::uint64_t{size}, std::uint64_t{0}})
    read_index(bytes, data_bytes);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string seed("MMIDIDX\0\0", 9);
  append<std::uint64_t>(seed, {1});
  append<std::uint8_t>(seed, {8});
  append<std::uint64_t>(seed, {2, 3});
  append<std::int32_t>(seed, {3, 4});
  append<std::int64_t>(seed, {0, 6});
  append<std::int64_t>(seed, {0, 1, 2});
  return {seed};
}
