// How functions report failures: result<T> holds a value or a failure. Libraries that throw are wrapped in
// the .cpp that calls them, so no exception passes from one folder of penstock to another. Used everywhere in
// runtime/ and actors/.
#pragma once

#include <penstock/error.hpp>

#include <fmt/core.h>
#include <tl/expected.hpp>

#include <string_view>
#include <utility>

namespace penstock {

template <class T>
using result = tl::expected<T, failure>;

/// A failure with a formatted message: refuse(errc::io, "reading '{}': ...", path).
template <class... Args>
[[nodiscard]] tl::unexpected<failure> refuse(errc code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(failure{code, fmt::format(format, std::forward<Args>(args)...), 0});
}

/// The message is "what: strerror(os_code)". Pass errno directly: any call in between may change it.
[[nodiscard]] failure os_failure(errc code, int os_code, std::string_view what);
[[nodiscard]] inline tl::unexpected<failure> refuse_os(errc code, int os_code, std::string_view what) {
  return tl::unexpected(os_failure(code, os_code, what));
}

/// Returns the value, or throws the failure as penstock::error. Used at the boundary to the public API.
template <class T>
T value_or_throw(result<T> from) {
  if (!from) throw error(std::move(from.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*from);
}

}  // namespace penstock
