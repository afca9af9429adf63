#include "runtime/base/units.hpp"
#include "tools/penstock/doctor/row_checks.hpp"

#include <cmath>

namespace penstock::doctor {
namespace {

using peer = hosts_facts::peer;

constexpr double long_trip_seconds = 0.02;
constexpr double narrow_bytes_per_second = 100e6;
constexpr double clocks_apart_seconds = 60;

/// Skips a row that an earlier one already explains.
std::optional<finding> known_before(const hosts_facts& h) {
  if (!h.address_trouble.empty() || !h.reach_trouble.empty()) return skipped("it cannot be reached (see host.reach)");
  if (!h.secret_trouble.empty()) return skipped("the two sides do not use the same secret (see host.secret)");
  if (!h.version_trouble.empty()) return skipped("the versions differ (see host.version)");
  return std::nullopt;
}

std::optional<finding> not_measured(const hosts_facts& h) {
  if (auto known = known_before(h)) return known;
  if (!h.measure_trouble.empty() && h.bytes_per_second == 0) return skipped("it could not be measured (see host.bandwidth)");
  return std::nullopt;
}

std::string who_listens(const hosts_facts& h) {
  return h.who == peer::session ? "session " + h.name : fmt::format("loader host {} with {}", h.name, counted(h.workers, "worker"));
}

std::string seconds_for_people(double seconds) {
  return duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

}  // namespace

finding check_reach(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (!h.address_trouble.empty()) return {status::fail, h.address_trouble, "", "write it as HOST:PORT"};
  if (!h.reach_trouble.empty()) return {status::fail, fmt::format("{}: {}", h.address, h.reach_trouble)};
  if (h.reached.empty()) return skipped("no question was sent (see host.secret)");
  if (h.who == peer::none) return {status::ok, h.reached + " answers"};
  return {status::ok, fmt::format("{}: {}", h.reached, who_listens(h))};
}

finding check_hosts_secret(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (!h.address_trouble.empty() || !h.reach_trouble.empty()) return skipped("it cannot be reached (see host.reach)");
  if (!h.secret_trouble.empty()) return {status::fail, h.secret_trouble};
  return {status::ok, h.encrypted ? "both sides have the same secret; the connection is encrypted"
                                  : "neither side has a secret: any machine that reaches that port may join, and nothing is encrypted"};
}

finding check_versions(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (!h.version_trouble.empty()) return {status::fail, h.version_trouble};
  if (auto known = known_before(h)) return *known;
  return {status::ok, "both run penstock " + h.version};
}

finding check_round_trip(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (auto known = not_measured(h)) return *known;
  return {h.round_trip_seconds < long_trip_seconds ? status::ok : status::warn, seconds_for_people(h.round_trip_seconds)};
}

finding check_bandwidth(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (auto known = known_before(h)) return *known;
  if (!h.measure_trouble.empty())
    return {status::fail, "the connection ended while it was measured: " + h.measure_trouble, "", "try again; see the log of the other side"};
  return {h.bytes_per_second >= narrow_bytes_per_second ? status::ok : status::warn,
          fmt::format("{:.0f} MB/s over one connection; each worker has its own", h.bytes_per_second / 1e6)};
}

finding check_clocks(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (auto known = not_measured(h)) return *known;
  const double apart = std::abs(h.clock_ahead_seconds);
  return {apart < clocks_apart_seconds ? status::ok : status::warn,
          fmt::format("the clock there is {} {}", seconds_for_people(apart), h.clock_ahead_seconds < 0 ? "behind" : "ahead")};
}

finding check_data_here(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (auto known = known_before(h)) return *known;
  if (h.who == peer::host) return skipped("a loader host lists the dataset when a session connects");
  if (!h.measure_trouble.empty()) return skipped("the connection ended before this could be checked (see host.bandwidth)");
  if (!h.program.empty()) return skipped(fmt::format("the session sends its {} code, and only that code knows the data", h.program));
  if (!h.data_trouble.empty()) return {status::fail, h.data_trouble};
  return {status::ok, h.data_path.empty() ? counted(h.samples, "sample") : fmt::format("{}: {}", h.data_path, counted(h.samples, "sample"))};
}

finding check_same_data(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (auto known = known_before(h)) return *known;
  if (h.who == peer::host) return skipped("a loader host compares the dataset when a session connects");
  if (!h.data_trouble.empty()) return skipped("the dataset is not here (see host.data)");
  if (!h.program.empty() && h.own_program != h.program)
    return {status::fail, fmt::format("the session's workers run {}, which this command cannot start", h.program), "",
            "start it, and the host, as `python -m penstock`"};
  if (!h.difference.empty()) return {status::fail, h.difference};
  if (!h.compared) return skipped("the connection ended before the datasets could be compared (see host.bandwidth)");
  if (!h.program.empty()) return {status::ok, "the versions of " + h.program + " and its packages are the same as the session's"};
  return {status::ok, "the session's: " + h.fingerprint};
}

finding check_cores(const facts& f) {
  const hosts_facts& h = *f.hosts;
  if (h.who == peer::host) return {status::info, fmt::format("{} there", counted(h.workers, "worker"))};
  return {status::info, fmt::format("{} here: `penstock host` starts one worker per core", counted(h.cores, "core"))};
}

}  // namespace penstock::doctor
