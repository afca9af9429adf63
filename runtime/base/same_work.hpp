// Whether a worker works on something that hung before. Used by the history of hangs and by status.
#pragma once

#include "runtime/base/batch_work.hpp"
#include "runtime/base/work_kind.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

/// A data loader submits a batch that timed out again as another job, so there the sample identifies the work, if both are known.
[[nodiscard]] inline bool is_same_work(const hung_work& known, const std::optional<std::uint64_t>& job, std::string_view name, work_kind kind) {
  const bool by_sample = kind == work_kind::batches && sample_in_work(name) && sample_in_work(known.name);
  return by_sample ? known.name == name : known.job == job && (job || known.name == name);
}

[[nodiscard]] inline bool works_on(const worker_status& worker, const hung_work& hung, work_kind kind) {
  if (!worker.current_sample) return false;
  if (kind == work_kind::samples) return is_same_work(hung, {}, *worker.current_sample, kind);
  const auto named = job_named(*worker.current_sample);
  return named && is_same_work(hung, named->job, named->work, kind);
}

}  // namespace penstock
