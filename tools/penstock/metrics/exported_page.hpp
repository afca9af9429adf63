// One page of metrics for all sessions of a user: running ones from their own pages, ended ones from their records.
// Pure. Used by `penstock metrics`.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// What can be seen of a running session from outside, even if it does not answer.
struct seen_from_outside {
  int pid = 0;                       ///< 0: unknown
  bool suspended = false;            ///< the session's process is stopped, by SIGSTOP or a debugger
  std::optional<double> last_seen{};  ///< when the session last wrote to its record, in Unix time
  std::string id{};                  ///< the id of the session's record; empty: it has none
};

/// Merges the pages of running sessions: each metric appears once, and its lines have the label `session`.
class merged_pages {
 public:
  /// `name`: for `penstock --session`. An empty page: the session does not answer.
  void add(const std::string& name, const std::string& page, const seen_from_outside& seen = {});
  [[nodiscard]] std::string text() &&;

 private:
  struct metric {
    std::string first_of;  // the first session that has the metric
    std::string head;      // HELP and TYPE
    std::string lines;
  };
  void add_line(const std::string& name, std::string_view line, metric*& current);

  std::vector<std::string> order_;
  std::map<std::string, metric> metrics_;
  struct session {
    bool answers = false;
    seen_from_outside seen;
  };
  std::map<std::string, session> sessions_;
};

/// `sessions`: for each, past_session::summary() with "id", "status", "last_death", "last_owner_death" (null: none), "deaths" (counts, by
/// "worker" or "gpu" and cause), and the lists of events "quarantine" and "failures".
[[nodiscard]] std::string page_of_ended(const std::vector<nlohmann::ordered_json>& sessions);

}  // namespace penstock::cli
