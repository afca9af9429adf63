// What a pool's worker is doing, as a text: "thumbnail (job 17)". The worker writes it (job_runner), the pool reads it.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace penstock {

struct named_job {
  std::string_view work;
  std::uint64_t job = 0;
};

/// Empty if this is not the name of a job.
[[nodiscard]] inline std::optional<named_job> job_named(std::string_view name) {
  constexpr std::string_view before_number = " (job ";
  const std::size_t end = name.rfind(before_number);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view number = name.substr(end + before_number.size());
  named_job all{name.substr(0, end)};
  const auto [rest, fault] = std::from_chars(number.data(), number.data() + number.size(), all.job);
  if (fault != std::errc() || std::string_view(rest, number.data() + number.size()) != ")") return std::nullopt;
  return all;
}

}  // namespace penstock
