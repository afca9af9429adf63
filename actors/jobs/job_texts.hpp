// The texts that tell callers how a job ended.
#pragma once

#include "actors/jobs/job_record.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/schedule/job_book.hpp"

#include <penstock/pool.hpp>

#include <cstdint>
#include <map>
#include <string>

namespace penstock::jobs {

[[nodiscard]] job_status status_of(schedule::job_end how);
/// One sentence; empty for outcomes that have their own text.
[[nodiscard]] std::string text_of(const schedule::settle_job& end, const job_record& job);
/// For log and events: "job 17 (thumbnail): timed_out: ...", for a data loader "sample 61 killed 3 workers and is not tried
/// again".
[[nodiscard]] std::string text_of_failure(std::uint64_t job, const std::string& work, const job_failure& why, work_kind kind);
/// "a, b, c", or "none".
[[nodiscard]] std::string names_text(const std::map<std::string, std::uint32_t, std::less<>>& functions);

}  // namespace penstock::jobs
