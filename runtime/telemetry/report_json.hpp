// Reports and status as the JSON that scripts rely on: schemas penstock.run/1 and penstock.status/1.
#pragma once

#include "runtime/base/work_kind.hpp"

#include <penstock/event.hpp>
#include <penstock/report.hpp>

#include <nlohmann/json_fwd.hpp>

namespace penstock::telemetry {

nlohmann::ordered_json as_json(const run_report& report);
nlohmann::ordered_json as_json(const session_status& status);
nlohmann::ordered_json as_json(const limits_status& limits);
nlohmann::ordered_json as_json(const death_report& death);
nlohmann::ordered_json as_json(const owner_death_report& death);
nlohmann::ordered_json as_json(const raised_exception& exception);
nlohmann::ordered_json as_json(const failure_report& failed);
nlohmann::ordered_json as_json(const quarantine_report& quarantined);
/// For `deaths_cost` in status and `cost` in deaths.
nlohmann::ordered_json as_json(const death_costs& cost, std::uint64_t quarantined, std::uint64_t failed);
/// An entry of a pool's quarantine: `job` and `work`, then the fields of a sample's entry, where `sample` and
/// `path` repeat these two values.
nlohmann::ordered_json poisoned_job_as_json(const quarantine_report& poisoned);
/// An entry of the quarantine of a session, a pool or a data loader.
nlohmann::ordered_json quarantine_as_json(const quarantine_report& quarantined, work_kind kind);
/// A line of `penstock events --json`. "time" is as_utc().
nlohmann::ordered_json as_json(const event& what);
/// {"error": {"kind": "...", "message": "..."}}: what every verb prints if it fails under --json.
nlohmann::ordered_json as_json(const failure& why);

/// Whether the session has [loader.hosts].
[[nodiscard]] bool has_hosts(const session_status& status) noexcept;

/// "2026-11-20T14:04:18.123456Z".
[[nodiscard]] std::string as_utc(std::chrono::system_clock::time_point time);

}  // namespace penstock::telemetry
