#include "tools/penstock/chaos/stream_check.hpp"

#include <algorithm>
#include <optional>

namespace penstock::cli {

stream_faults stream_check::order_of(const std::vector<delivered_batch>& batches,
                                     const std::vector<delivery_promise>& promises) const {
  stream_faults found;
  std::uint32_t owner = 0;
  place last;                    // this owner's last batch
  bool begun = false;            // whether this owner has delivered a batch
  std::optional<place> highest;  // the last place that any owner has reached
  std::map<place, const delivered_batch*> taken;
  std::map<std::uint64_t, std::set<std::uint64_t>> seen;  // samples by epoch
  std::uint64_t promised = 0;
  auto promise = promises.begin();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const delivered_batch& batch = batches[i];
    for (; promise != promises.end() && promise->taken <= i; ++promise)
      promised = std::max(promised, promise->delivered);
    if (batch.owner < owner) ++found.stale;
    if (batch.owner > owner) begun = false;
    owner = std::max(owner, batch.owner);
    const place here{batch.epoch, batch.sequence};
    const auto [before, first_time] = taken.emplace(here, &batch);
    const bool backwards = begun && here <= last;
    const bool late = first_time && highest && here < *highest;  // an earlier owner left this batch out
    if (backwards || late) ++found.out_of_order;
    if (!backwards) last = here;
    begun = true;
    highest = std::max(highest.value_or(here), here);
    const auto number = number_.find(here);
    const bool was_promised = number != number_.end() && number->second < promised;
    if (!first_time && batch.owner > before->second->owner && !was_promised) {
      const bool same = batch.samples == before->second->samples && batch.digest == before->second->digest;
      if (!same) ++found.stale;
      before->second = &batch;
      continue;
    }
    for (const std::uint64_t sample : batch.samples) {
      if (!seen[batch.epoch].insert(sample).second) ++found.duplicated;
    }
    // A repeated batch without samples delivers no sample twice, but it is a fault, too.
    if (!first_time && !backwards && batch.samples.empty()) ++found.out_of_order;
  }
  return found;
}

/// Counts the samples of batches that the session reported as delivered before the journal contained them.
std::uint64_t stream_check::broken_promises(const std::vector<delivered_batch>& batches,
                                            const std::vector<delivery_promise>& promises) const {
  std::set<place> there;
  std::set<place> missed;
  std::size_t next = 0;
  std::uint64_t kept = 0;
  auto due = expected_.begin();
  for (const delivery_promise& promise : promises) {
    for (; next < std::min(promise.taken, batches.size()); ++next)
      there.emplace(batches[next].epoch, batches[next].sequence);
    for (; kept < promise.delivered && due != expected_.end(); ++kept, ++due) {
      if (!there.contains(due->first)) missed.insert(due->first);
    }
  }
  // The comparison counts the batches that never came.
  for (const delivered_batch& batch : batches) there.emplace(batch.epoch, batch.sequence);
  std::uint64_t samples = 0;
  for (const place& where : missed) {
    if (there.contains(where)) samples += std::max<std::size_t>(1, expected_.at(where).samples.size());
  }
  return samples;
}

stream_check::stream_check(std::vector<delivered_batch> undisturbed) {
  own_ = order_of(undisturbed, {});
  for (delivered_batch& batch : undisturbed) expected_[{batch.epoch, batch.sequence}] = std::move(batch);
  for (const auto& [where, batch] : expected_) number_.emplace(where, number_.size());
}

void stream_check::compare(const delivered_batch& batch, stream_faults& found) const {
  const auto expected = expected_.find({batch.epoch, batch.sequence});
  if (expected == expected_.end()) {
    ++found.stale;
    return;
  }
  const std::vector<std::uint64_t>& planned = expected->second.samples;
  const bool foreign = !std::ranges::all_of(batch.samples, [&](std::uint64_t sample) {
    return std::ranges::find(planned, sample) != planned.end();
  });
  // If samples are missing, the bytes cannot be equal; that counts as lost.
  const bool other_bytes = batch.samples == planned && batch.digest != expected->second.digest;
  const bool other_order = batch.samples.size() == planned.size() && batch.samples != planned;
  if (foreign || other_bytes || other_order) ++found.stale;
}

stream_faults stream_check::check(const std::vector<delivered_batch>& disturbed,
                                  const std::vector<delivery_promise>& promises) const {
  stream_faults found = order_of(disturbed, promises);
  found.lost = broken_promises(disturbed, promises);
  std::map<place, std::set<std::uint64_t>> delivered;  // the samples of each batch, from the last owner that delivered it
  for (const delivered_batch& batch : disturbed) {
    compare(batch, found);
    delivered[{batch.epoch, batch.sequence}] = {batch.samples.begin(), batch.samples.end()};
  }
  for (const auto& [where, batch] : expected_) {
    const auto there = delivered.find(where);
    if (there == delivered.end() && batch.samples.empty())
      ++found.lost;  // a batch without rows counts, too
    for (const std::uint64_t sample : batch.samples) {
      if (there == delivered.end() || !there->second.contains(sample)) ++found.lost;
    }
  }
  return found;
}

std::uint64_t stream_check::replays_of(const std::vector<delivered_batch>& batches) {
  std::map<place, std::uint32_t> owners;
  std::uint64_t replays = 0;
  for (const delivered_batch& batch : batches) {
    const auto [before, first_time] = owners.emplace(place{batch.epoch, batch.sequence}, batch.owner);
    if (first_time) continue;
    if (batch.owner > before->second) ++replays;
    before->second = std::max(before->second, batch.owner);
  }
  return replays;
}

}  // namespace penstock::cli
