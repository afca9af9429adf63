#include "runtime/base/streaming_copy.hpp"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace penstock {

#ifdef __SSE2__

namespace {

constexpr std::size_t line_bytes = 64;  // stores that fill a cache line are written to memory together

void stream_line(std::byte* to, const std::byte* from) noexcept {
  const auto* const source = reinterpret_cast<const __m128i*>(from);
  auto* const place = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(place, a);
  _mm_stream_si128(place + 1, b);
  _mm_stream_si128(place + 2, c);
  _mm_stream_si128(place + 3, d);
}

}  // namespace

void streaming_copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
  if (from.empty()) return;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to.data()) % line_bytes;
  std::size_t done = misaligned == 0 ? 0 : line_bytes - misaligned;
  if (done > from.size()) done = from.size();
  std::memcpy(to.data(), from.data(), done);
  for (; from.size() - done >= line_bytes; done += line_bytes)
    stream_line(to.data() + done, from.data() + done);
  std::memcpy(to.data() + done, from.data() + done, from.size() - done);
  _mm_sfence();  // without the fence, these stores are not ordered before later ones
}

#else

void streaming_copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

#endif

}  // namespace penstock
