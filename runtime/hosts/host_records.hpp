// What a session records about its loader hosts by name, even after they are gone: what they sent, how much processor time they used,
// how they were lost. Pure. Filled by actors/remote/host_hub; status and metrics show it.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/hosts/host_book.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::hosts {

/// The name of a host as status and metrics show it, and as a target.
[[nodiscard]] std::string shown_name(const std::string& name);

class host_records {
 public:
  void came(const host_card& card);
  void went(const host_card& card, std::optional<loss_cause> lost, const std::string& why, steady_time now);
  void received(const host_card& from, std::uint64_t samples, std::uint64_t bytes);
  void refused(const host_card& from, bad_transfer kind);
  /// `total`: processor time that this connection and its workers have used since it joined.
  void used(const host_card& of, connection_id connection, nanoseconds total, steady_time now);
  void closed(connection_id connection) { used_.erase(connection); }

  /// Cores in use over the last 10 s; empty: not known yet.
  [[nodiscard]] std::optional<double> cores_of(const host_card& card) const;
  /// By name.
  [[nodiscard]] std::vector<host_record> all(steady_time now) const;

 private:
  struct entry {
    host_record record;
    std::uint32_t here = 0;  // processes of this name
    std::optional<steady_time> lost_at{};
  };
  struct reading {
    steady_time when{};
    nanoseconds total{0};
  };

  entry& entry_of(const host_card& card);

  std::map<std::string, entry> records_;                    // by name
  std::map<connection_id, nanoseconds> used_;               // processor time as last reported
  std::map<std::uint64_t, std::deque<reading>> processes_;  // by host_card::process: readings of the last 10 s
};

}  // namespace penstock::hosts
