// Converts the tokens of a file to ids and their targets. Pure. Used by the tokens dataset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace penstock {

/// tokens[i] = from[i] and targets[i] = from[i + 1]. Returns the largest of from[0] ... from[count], converted to Number.
/// Plain loops over distinct arrays: the compiler turns them into vector instructions.
template <class Number, class Token, class Id>
[[gnu::always_inline]] inline Number widen(const Token* __restrict from, Id* __restrict tokens, Id* __restrict targets,
                                           std::size_t count) noexcept {
  auto highest = static_cast<Number>(from[count]);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<Id>(from[i]);
    targets[i] = static_cast<Id>(from[i + 1]);
    highest = std::max(highest, static_cast<Number>(from[i]));
  }
  return highest;
}

#ifdef __x86_64__

/// The number of ids that one step of stream_avx2 writes: a cache line of tokens and one of targets.
inline constexpr std::size_t streamed_ids = 16;

/// Like widen() for int32, but its stores bypass the caches: another process reads the ids, and fetching each line
/// first would take longer than the conversion. `count` must be a multiple of streamed_ids other than 0; `tokens` and
/// `targets` must be aligned to 32 bytes.
template <class Number, class Token>
[[gnu::target("avx2")]] inline Number stream_avx2(const Token* from, std::int32_t* tokens, std::int32_t* targets,
                                                  std::size_t count) noexcept {
  constexpr std::size_t lanes = 8;
  using eight_tokens [[gnu::vector_size(lanes * sizeof(Token))]] = Token;
  using eight_numbers [[gnu::vector_size(lanes * sizeof(Number))]] = Number;
  using eight_ids [[gnu::vector_size(lanes * sizeof(std::int32_t))]] = std::int32_t;
  eight_numbers highest{};
  for (std::size_t i = 0; i < count; i += lanes) {
    eight_tokens own;
    eight_tokens next;
    std::memcpy(&own, from + i, sizeof own);
    std::memcpy(&next, from + i + 1, sizeof next);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(tokens + i),
                        reinterpret_cast<__m256i>(__builtin_convertvector(own, eight_ids)));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(targets + i),
                        reinterpret_cast<__m256i>(__builtin_convertvector(next, eight_ids)));
    const auto numbers = __builtin_convertvector(next, eight_numbers);
    highest = numbers > highest ? numbers : highest;
  }
  _mm_sfence();  // without the fence, later stores may become visible before these
  auto most = static_cast<Number>(from[0]);
  for (std::size_t lane = 0; lane < lanes; ++lane) most = std::max<Number>(most, highest[lane]);
  return most;
}

/// The fastest widen() with AVX2.
template <class Number, class Token, class Id>
[[gnu::target("avx2")]] inline Number widen_avx2(const Token* from, Id* tokens, Id* targets, std::size_t count) noexcept {
  constexpr std::size_t alignment = 32;
  constexpr std::size_t streamed_min = 1024;  // for a few lines, using the caches is faster than waiting for memory
  if constexpr (sizeof(Id) == sizeof(std::int32_t) && sizeof(Token) <= sizeof(Id)) {
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(tokens) % alignment;
    if (count >= streamed_min && misaligned == reinterpret_cast<std::uintptr_t>(targets) % alignment) {
      const std::size_t head = (alignment - misaligned) % alignment / sizeof(Id);
      const std::size_t streamed = (count - head) / streamed_ids * streamed_ids;
      const std::size_t tail = head + streamed;
      return std::max({widen<Number>(from, tokens, targets, head),
                       stream_avx2<Number>(from + head, tokens + head, targets + head, streamed),
                       widen<Number>(from + tail, tokens + tail, targets + tail, count - tail)});
    }
  }
  return widen<Number>(from, tokens, targets, count);
}

#endif

/// The fastest widen() on this machine.
template <class Number, class Token, class Id>
Number widen_fast(const Token* from, Id* tokens, Id* targets, std::size_t count) noexcept {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return widen_avx2<Number>(from, tokens, targets, count);
#endif
  return widen<Number>(from, tokens, targets, count);
}

}  // namespace penstock
