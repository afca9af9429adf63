// The types of tokens in files and in tensors. Used by the tokens dataset.
#pragma once

#include <penstock/config.hpp>
#include <penstock/tensor.hpp>

#include <cstdint>
#include <utility>

namespace penstock {

/// Calls use.template operator()<T>() with the type of a token. Tokens are never floating-point; such types count as uint8.
template <class Use>
decltype(auto) with_token_type(dtype type, Use&& use) {
  switch (type) {
    case dtype::int8: return use.template operator()<std::int8_t>();
    case dtype::uint16: return use.template operator()<std::uint16_t>();
    case dtype::int16: return use.template operator()<std::int16_t>();
    case dtype::uint32: return use.template operator()<std::uint32_t>();
    case dtype::int32: return use.template operator()<std::int32_t>();
    case dtype::uint64: return use.template operator()<std::uint64_t>();
    case dtype::int64: return use.template operator()<std::int64_t>();
    default: return use.template operator()<std::uint8_t>();
  }
}

/// Ids below this fit in int32.
inline constexpr std::uint64_t int32_ids = std::uint64_t{1} << 31U;

/// Whether the tensors of ids are int64.
inline bool gives_int64(const dataset_config& dataset) noexcept {
  return dataset.vocab && *dataset.vocab > int32_ids;
}

inline bool can_hold(dtype type, std::uint32_t id) {
  return with_token_type(type, [id]<class Token>() { return std::in_range<Token>(id); });
}

}  // namespace penstock
