// Which sample a member of a shard belongs to: WebDataset's rule. Pure. Used by the index of shards.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

struct member_name {
  std::string_view key;  ///< folder and file name up to the first dot; empty: the member belongs to no sample
  std::string_view extension;  ///< what follows that dot, in the name's case: "jpg", "seg.PNG"
};

/// "a/b.seg.png" -> "a/b", "seg.png". A name without a dot, or whose last part begins with a dot, belongs to no
/// sample.
constexpr member_name split_member_name(std::string_view name) noexcept {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return {};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

/// ASCII only, independent of the locale.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace penstock
