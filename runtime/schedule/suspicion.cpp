#include "runtime/schedule/suspicion.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>

namespace penstock::schedule {
namespace {

// If a sample was cleared this many times and its worker dies again, it kills only together with
// other samples. It is quarantined, because more probations would not find the cause.
constexpr std::uint32_t cleared_max = 2;

std::uint32_t deaths_in(const std::vector<std::string>& causes) {
  return static_cast<std::uint32_t>(causes.size());
}

}  // namespace

std::optional<sample_quarantined> suspicion::blame_death(const suspect& who, stream_position position,
                                                         bool alone, std::uint32_t worker,
                                                         const std::string& cause) {
  record& found = records_[who];
  found.causes.push_back(cause);
  found.last_workers = {worker};
  const bool enough = deaths_in(found.causes) + 1 >= max_attempts_;
  // A lease of the next epoch may have been in progress when the sample was quarantined.
  if (!enough || is_quarantined(who.sample)) return std::nullopt;
  if (alone || max_attempts_ == 1 || found.cleared >= cleared_max)
    return quarantine(who.sample, position, found);
  isolated_.try_emplace(who, isolation{position, std::nullopt});
  return std::nullopt;
}

std::uint32_t suspicion::attempt_of(const suspect& who) const {
  const auto it = records_.empty() ? records_.end() : records_.find(who);
  return it == records_.end() ? 1 : 1 + deaths_in(it->second.causes);
}

std::vector<std::string> suspicion::causes_of(const suspect& who) const {
  const auto it = records_.find(who);
  return it == records_.end() ? std::vector<std::string>() : it->second.causes;
}

void suspicion::same_attempt(const suspect& who, std::uint32_t worker) {
  if (const auto it = records_.find(who); it != records_.end()) it->second.last_workers.push_back(worker);
}

std::vector<std::uint32_t> suspicion::last_workers(const suspect& who) const {
  const auto it = records_.empty() ? records_.end() : records_.find(who);
  if (it == records_.end() || it->second.causes.empty()) return {};
  return it->second.last_workers;
}

probation suspicion::as_probation(const suspect& who, const isolation& waiting) const {
  return {who, waiting.position, attempt_of(who), waiting.lease};
}

std::optional<probation> suspicion::next_probation() const {
  const auto it = std::ranges::find_if(isolated_, [](const auto& entry) { return !entry.second.lease; });
  return it == isolated_.end() ? std::nullopt : std::optional(as_probation(it->first, it->second));
}

void suspicion::begin_probation(const suspect& who, const lease_ref& lease) {
  const auto it = isolated_.find(who);
  PENSTOCK_CHECK(it != isolated_.end() && !it->second.lease, "sample {} of epoch {} is not waiting",
                 who.sample, who.epoch);
  it->second.lease = lease;
}

std::optional<probation> suspicion::probation_under(const lease_ref& lease) const {
  const auto it = std::ranges::find_if(isolated_, [&](const auto& e) { return e.second.lease == lease; });
  return it == isolated_.end() ? std::nullopt : std::optional(as_probation(it->first, it->second));
}

std::optional<probation> suspicion::clear(const lease_ref& lease) {
  const std::optional<probation> ended = probation_under(lease);
  if (!ended) return std::nullopt;
  record& found = records_.at(ended->who);
  found.causes.clear();
  ++found.cleared;
  isolated_.erase(ended->who);
  return ended;
}

void suspicion::worker_gone(worker_ref who) {
  for (auto& [key, waiting] : isolated_) {
    if (waiting.lease && waiting.lease->holder == who) waiting.lease.reset();
  }
}

std::vector<sample_quarantined> suspicion::quarantine_isolated(const std::string& reason) {
  std::vector<sample_quarantined> all;
  while (!isolated_.empty()) {
    const auto [who, waiting] = *isolated_.begin();
    all.push_back(quarantine(who.sample, waiting.position, records_.at(who)));
    all.back().causes.push_back("could not be tried alone: " + reason);
  }
  return all;
}

sample_quarantined suspicion::quarantine(std::uint64_t sample, stream_position position,
                                         const record& found) {
  quarantined_.insert(sample);
  // The sample may be isolated in the next epoch, too; the outcome applies to both epochs.
  std::erase_if(isolated_, [&](const auto& entry) { return entry.first.sample == sample; });
  return {position, sample, deaths_in(found.causes), found.causes};
}

void suspicion::release(std::uint64_t sample) {
  if (quarantined_.erase(sample) == 0) return;
  std::erase_if(records_, [&](const auto& entry) { return entry.first.sample == sample; });
}

void suspicion::forget(const suspect& who) {
  isolated_.erase(who);
  records_.erase(who);
  quarantined_.erase(who.sample);
}

void suspicion::forget_epochs_before(std::uint64_t epoch) {
  const auto over = [&](const auto& entry) { return entry.first.epoch < epoch; };
  std::erase_if(isolated_, over);
  std::erase_if(records_, over);
}

void suspicion::forget_suspects() {
  isolated_.clear();
  records_.clear();
}

}  // namespace penstock::schedule
