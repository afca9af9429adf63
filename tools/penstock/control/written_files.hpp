// The files that a session's program has written when it has ended. Used by stop, and for ended sessions.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <map>
#include <string>

namespace penstock::cli {

/// Whether the file was written after a session's end, so that its contents are not that session's.
/// `ended`: a UTC time; if it is null, the end is unknown and the result is false.
[[nodiscard]] bool was_written_later(const std::string& path, const nlohmann::ordered_json& ended);

/// `written`: {"files": {...}, "not_written": {...}}, and "ended" if the session is known to have ended. A line for
/// each: "state: /data/run.state (epoch 0, 768 samples delivered)", "report: /data/report.json was not written".
[[nodiscard]] std::string files_for_people(const nlohmann::ordered_json& written);

class written_files {
 public:
  /// Construct before the request that ends the session: only a report that is newer than this object counts as written.
  written_files() = default;
  /// For a session that has ended: each of its files is newer than its start.
  explicit written_files(std::chrono::system_clock::time_point started) : since_(started), all_are_new_(true) {}

  /// Takes the files in the session's answer: {"files": {"report": "/data/report.json"}}.
  void are(const nlohmann::ordered_json& answer);

  /// {"files": {"report": PATH}}; files that are missing, or older, are in "not_written".
  [[nodiscard]] nlohmann::ordered_json as_json() const;
  /// The positions in the files that were written, by kind: see position_in_file().
  [[nodiscard]] nlohmann::ordered_json positions() const;
  /// files_for_people() of as_json().
  [[nodiscard]] std::string for_people() const;
  /// The files that will be written, as text before the end: "report: /data/report.json".
  [[nodiscard]] std::string announced() const;

 private:
  /// The files, without those for which there was nothing to write.
  [[nodiscard]] std::map<std::string, std::string> expected() const;
  [[nodiscard]] bool is_written(const std::string& kind, const std::string& path) const;

  std::chrono::system_clock::time_point since_ = std::chrono::system_clock::now();
  bool all_are_new_ = false;
  std::map<std::string, std::string> files_;  // by kind
};

}  // namespace penstock::cli
