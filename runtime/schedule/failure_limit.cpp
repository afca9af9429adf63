#include "runtime/schedule/failure_limit.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::schedule {

void failure_limit::note(const std::string& name, const std::string& reason) {
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
  std::string most = "unknown";
  std::uint64_t times = 0;
  for (const auto& [reason, count] : reasons_) {
    if (count > times) {
      most = reason;
      times = count;
    }
  }
  return failure{
      errc::dataset,
      fmt::format("{} of the {} samples of epoch {} have failed, more than [loader] max_failed_fraction "
                  "= {} allows; the most frequent reason ({} times): {}",
                  open.failed, open.expected, open.epoch, max_fraction_, times, most),
      0};
}

}  // namespace penstock::schedule
