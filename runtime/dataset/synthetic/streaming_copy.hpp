// Copies large blocks past the caches: the destination is not read first, which saves a third of the memory
// traffic when many workers fill slots that only the device's DMA engine will read. Used by the synthetic
// dataset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace penstock {

/// Smaller copies go through the caches, where the DMA engine can read them.
inline constexpr std::size_t streaming_bytes_min = 256 * 1024;

inline void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#ifdef __SSE2__
  constexpr std::size_t line = 64;
  if (bytes >= streaming_bytes_min) {
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= line; to += line, from += line, bytes -= line) {
      const auto* in = reinterpret_cast<const __m128i*>(from);
      auto* out = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();  // only this orders streaming stores
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace penstock
