// Visits the members of a plain struct, without a list of them. Used by message_bytes.hpp.
#pragma once

#include <cstddef>
#include <type_traits>

namespace penstock::protocol {

namespace detail {

struct any_member {
  template <class T>
  operator T() const;
};

/// How many members an aggregate has: as many as it accepts initializers.
template <class T, class... Found>
consteval std::size_t member_count() {
  if constexpr (requires { T{Found{}..., any_member{}}; }) {
    return member_count<T, Found..., any_member>();
  } else {
    return sizeof...(Found);
  }
}

bool each(auto& visit, auto&... members) { return (visit(members) && ...); }

}  // namespace detail

/// Calls visit(member) for each member, in the order of their declarations, until it returns false; returns what the last
/// call returned. At most 14 members, because C++20 needs a name for each.
template <class T, class Visit>
bool visit_members(T& value, Visit& visit) {
  static_assert(std::is_aggregate_v<T>);
  constexpr std::size_t count = detail::member_count<std::remove_const_t<T>>();
  static_assert(count <= 14);
  if constexpr (count == 0) {
    return true;
  } else if constexpr (count == 1) {
    auto& [a] = value;
    return detail::each(visit, a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    return detail::each(visit, a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    return detail::each(visit, a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    return detail::each(visit, a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    return detail::each(visit, a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    return detail::each(visit, a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return detail::each(visit, a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return detail::each(visit, a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    return detail::each(visit, a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return detail::each(visit, a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    return detail::each(visit, a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (count == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return detail::each(visit, a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (count == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
    return detail::each(visit, a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (count == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = value;
    return detail::each(visit, a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  }
}

}  // namespace penstock::protocol
