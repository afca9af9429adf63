#include "runtime/schedule/failure_limit.hpp"

#include "runtime/base/counted.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::schedule {
namespace {

/// Reasons that differ only in numbers, such as offsets, are of one kind.
std::string without_numbers(std::string_view text) {
  std::string kind;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || !kind.ends_with('0')) kind += digit ? '0' : c;
  }
  return kind;
}

}  // namespace

std::uint64_t failure_limit::note(const std::string& name, const std::string& reason) {
  ++noted_;
  std::string text = reason;
  if (const auto at = name.empty() ? std::string::npos : text.find(name); at != std::string::npos)
    text.replace(at, name.size(), "...");
  const std::string kind = without_numbers(text);
  if (reasons_.size() >= reasons_max && !reasons_.contains(kind)) return ++others_;
  return ++reasons_.try_emplace(kind, counted_reason{std::move(text), 0}).first->second.times;
}

std::optional<failure> failure_limit::check(const epoch_account& open) const {
  const auto share =
      static_cast<std::uint64_t>(std::floor(max_fraction_ * static_cast<double>(open.expected)));
  if (open.failed <= std::max(always_allowed, share)) return std::nullopt;
  std::string message = fmt::format(
      "{} of the {} samples of epoch {} have failed, more than [loader] max_failed_fraction = {} allows",
      open.failed, open.expected, open.epoch, max_fraction_);
  const auto most = std::ranges::max_element(reasons_, {}, [](const auto& one) { return one.second.times; });
  // In a resumed epoch the failures may have happened in an earlier process.
  if (most != reasons_.end())
    message += fmt::format("; the most frequent reason ({} of {} so far): {}", most->second.times,
                           counted(noted_, "failure"), most->second.first);
  return failure{errc::dataset, std::move(message), 0};
}

}  // namespace penstock::schedule
