#include "tools/penstock/chaos/stream_check.hpp"

#include <algorithm>
#include <optional>

namespace penstock::cli {

stream_faults stream_check::order_of(const std::vector<delivered_batch>& batches) {
  stream_faults found;
  std::optional<place> last;
  std::map<std::uint64_t, std::set<std::uint64_t>> seen;
  for (const delivered_batch& batch : batches) {
    const place here{batch.epoch, batch.sequence};
    if (last && here <= *last) {
      ++found.out_of_order;
    } else {
      last = here;
    }
    for (const std::uint64_t sample : batch.samples) {
      if (!seen[batch.epoch].insert(sample).second) ++found.duplicated;
    }
  }
  return found;
}

stream_check::stream_check(std::vector<delivered_batch> undisturbed) : own_(order_of(undisturbed)) {
  for (delivered_batch& batch : undisturbed) expected_[{batch.epoch, batch.sequence}] = std::move(batch);
}

stream_faults stream_check::check(const std::vector<delivered_batch>& disturbed) const {
  stream_faults found = order_of(disturbed);
  std::map<std::uint64_t, std::set<std::uint64_t>> delivered;
  for (const delivered_batch& batch : disturbed) {
    delivered[batch.epoch].insert(batch.samples.begin(), batch.samples.end());
    const auto expected = expected_.find({batch.epoch, batch.sequence});
    if (expected == expected_.end()) {
      ++found.stale;
      continue;
    }
    const std::vector<std::uint64_t>& planned = expected->second.samples;
    const bool foreign = !std::ranges::all_of(batch.samples, [&](std::uint64_t sample) {
      return std::ranges::find(planned, sample) != planned.end();
    });
    // Where samples are missing the bytes cannot be the same; that is counted as lost.
    const bool other_bytes = batch.samples == planned && batch.digest != expected->second.digest;
    const bool other_order = batch.samples.size() == planned.size() && batch.samples != planned;
    if (foreign || other_bytes || other_order) ++found.stale;
  }
  for (const auto& [where, batch] : expected_) {
    for (const std::uint64_t sample : batch.samples) {
      const auto epoch = delivered.find(where.first);
      if (epoch == delivered.end() || !epoch->second.contains(sample)) ++found.lost;
    }
  }
  return found;
}

}  // namespace penstock::cli
