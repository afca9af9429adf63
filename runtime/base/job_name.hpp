// The text that says what a pool's worker is doing: "thumbnail (job 17)". The worker writes it (job_runner), the pool
// reads it.
#pragma once

#include "runtime/base/number.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

struct named_job {
  std::string_view work;
  std::uint64_t job = 0;
};

/// Empty if the text is not the name of a job.
[[nodiscard]] inline std::optional<named_job> job_named(std::string_view name) {
  constexpr std::string_view before_number = " (job ";
  const std::size_t end = name.rfind(before_number);
  if (end == std::string_view::npos || !name.ends_with(')')) return std::nullopt;
  const std::size_t at = end + before_number.size();
  const auto number = whole_number<std::uint64_t>(name.substr(at, name.size() - 1 - at));
  return number ? std::optional(named_job{name.substr(0, end), *number}) : std::nullopt;
}

}  // namespace penstock
