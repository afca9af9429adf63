#include "runtime/schedule/failure_limit.hpp"

#include "runtime/base/counted.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::schedule {

void failure_limit::note(const std::string& name, const std::string& reason) {
  ++noted_;
  std::string kind = reason;
  if (const auto at = name.empty() ? std::string::npos : kind.find(name); at != std::string::npos)
    kind.replace(at, name.size(), "...");
  const auto known = reasons_.find(kind);
  if (known != reasons_.end()) {
    ++known->second;
  } else {
    ++reasons_[reasons_.size() < reasons_max ? kind : "other reasons"];
  }
}

std::optional<failure> failure_limit::check(const epoch_account& open) const {
  const auto share =
      static_cast<std::uint64_t>(std::floor(max_fraction_ * static_cast<double>(open.expected)));
  if (open.failed <= std::max(always_allowed, share)) return std::nullopt;
  std::string message = fmt::format(
      "{} of the {} samples of epoch {} have failed, more than [loader] max_failed_fraction = {} allows",
      open.failed, open.expected, open.epoch, max_fraction_);
  const auto most = std::ranges::max_element(reasons_, {}, [](const auto& one) { return one.second; });
  // In a resumed epoch the failures may have happened in an earlier process.
  if (most != reasons_.end())
    message += fmt::format("; the most frequent reason ({} of {} so far): {}", most->second,
                           counted(noted_, "failure"), most->first);
  return failure{errc::dataset, std::move(message), 0};
}

}  // namespace penstock::schedule
