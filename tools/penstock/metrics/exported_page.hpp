// One page of metrics for all sessions of a user: those that run, from their own pages, and those that have ended, from their
// records. Pure. Used by `penstock metrics`.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// Merges the pages of running sessions: each metric stands once, and its lines have the label `session`.
class merged_pages {
 public:
  /// `name`: for `penstock --session`. An empty page: the session does not answer.
  void add(const std::string& name, const std::string& page);
  [[nodiscard]] std::string text() &&;

 private:
  struct metric {
    std::string first_of;  // the first session that has it
    std::string head;      // HELP and TYPE
    std::string lines;
  };
  void add_line(const std::string& name, std::string_view line, metric*& current);

  std::vector<std::string> order_;
  std::map<std::string, metric> metrics_;
  std::map<std::string, bool> sessions_;  // whether it answers
};

/// `sessions`: of each past_session::summary() with "id", "status", "last_death", "last_owner_death" (null: none),
/// "quarantine" and "failures" (events), lists.
[[nodiscard]] std::string page_of_ended(const std::vector<nlohmann::ordered_json>& sessions);

}  // namespace penstock::cli
