#include "runtime/base/xxh3.hpp"

#include "runtime/base/xxh3_functions.hpp"

#include <new>

namespace penstock {
namespace {

const xxh3_functions& fastest() noexcept {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return xxh3_with_avx2;
#endif
  return xxh3_compiled_here;
}

}  // namespace

void xxh3::reset() noexcept {
  static_assert(sizeof(state_) >= sizeof(XXH3_state_t) && alignof(xxh3) >= alignof(XXH3_state_t));
  XXH3_64bits_reset(new (state_.data()) XXH3_state_t);
}

void xxh3::add(std::span<const std::byte> bytes) noexcept {
  fastest().add(*std::launder(reinterpret_cast<XXH3_state_t*>(state_.data())), bytes.data(), bytes.size());
}

std::uint64_t xxh3::value() const noexcept {
  return XXH3_64bits_digest(std::launder(reinterpret_cast<const XXH3_state_t*>(state_.data())));
}

std::uint64_t xxh3_of(std::span<const std::byte> bytes) noexcept {
  return fastest().of(bytes.data(), bytes.size());
}

}  // namespace penstock
