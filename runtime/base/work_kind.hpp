// What the workers of a run work on, and the words for it: the only place that decides whether messages name samples, jobs or
// batches. Used by events, advice and every verb.
#pragma once

#include "runtime/base/job_name.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

enum class work_kind : std::uint8_t {
  samples,  ///< a session: samples, leased in batches
  jobs,     ///< a pool
  batches,  ///< a Python DataLoader: a pool whose jobs are batches of samples
};

struct work_words {
  const char* name;  ///< the field `of` in JSON
  const char* run;   ///< what the user started
  const char* item;  ///< the unit of its work
  const char* items;
  const char* doing;  ///< what a worker does with an item
};
[[nodiscard]] constexpr work_words words_for(work_kind kind) noexcept {
  switch (kind) {
    case work_kind::jobs: return {"jobs", "pool", "job", "jobs", "running"};
    case work_kind::batches: return {"batches", "loader", "batch", "batches", "loading"};
    case work_kind::samples: break;
  }
  return {"samples", "session", "sample", "samples", "loading"};
}

[[nodiscard]] inline work_kind kind_of_work(const std::optional<pool_statistics>& jobs) noexcept {
  return !jobs ? work_kind::samples : jobs->of_batches ? work_kind::batches : work_kind::jobs;
}

/// A worker's current work. For a DataLoader, whose users see no job numbers, "sample 37 (job 78)" becomes "sample 37".
[[nodiscard]] inline std::string_view work_for_people(std::string_view work, work_kind kind) {
  const auto named = kind == work_kind::batches ? job_named(work) : std::nullopt;
  return named ? named->work : work;
}

}  // namespace penstock
