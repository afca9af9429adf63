#include "tools/penstock/control/written_files.hpp"

#include "runtime/base/text.hpp"
#include "tools/penstock/control/file_position.hpp"
#include "tools/penstock/watch/event_times.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto clock_difference = 1s;  // how far a file server's clock, or a coarse clock, may lag behind this machine's

constexpr auto time_to_finish = 2s;  // the record ends before reports are written, and a killed run's record may be 1 s old

/// A quarantine file exists only if a sample was quarantined.
bool is_written_if_needed(const std::string& kind) {
  return kind == "quarantine";
}

}  // namespace

void written_files::are(const nlohmann::ordered_json& answer) {
  if (const auto files = answer.find("files"); files != answer.end() && files->is_object())
    files_ = files->get<std::map<std::string, std::string>>();
}

std::map<std::string, std::string> written_files::expected() const {
  std::map<std::string, std::string> all = files_;
  std::erase_if(all, [this](const auto& one) { return is_written_if_needed(one.first) && !is_written(one.first, one.second); });
  return all;
}

/// Whether the file exists and is new enough. A report must be new,
/// because it is written at the end; a quarantine file may be old.
bool written_files::is_written(const std::string& kind, const std::string& path) const {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return false;
  const auto written = std::chrono::system_clock::from_time_t(facts.st_mtim.tv_sec);
  const bool is_new = kind == "report" || (all_are_new_ && kind != "quarantine");
  return !is_new || written + clock_difference >= std::chrono::floor<std::chrono::seconds>(since_);
}

nlohmann::ordered_json written_files::as_json() const {
  nlohmann::ordered_json all{{"files", nlohmann::ordered_json::object()}};
  for (const auto& [kind, path] : expected()) all[is_written(kind, path) ? "files" : "not_written"][kind] = path;
  return all;
}

nlohmann::ordered_json written_files::positions() const {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& [kind, path] : expected()) {
    if (auto position = is_written(kind, path) ? position_in_file(kind, path) : nlohmann::ordered_json(); position.is_object()) all[kind] = std::move(position);
  }
  return all;
}

std::string written_files::for_people() const {
  return files_for_people(as_json());
}

bool was_written_later(const std::string& path, const nlohmann::ordered_json& ended) {
  const auto end = ended.is_string() ? time_of_utc(ended.get<std::string>()) : std::nullopt;
  struct stat facts {};
  if (!end || ::stat(path.c_str(), &facts) != 0) return false;
  const auto written = std::chrono::system_clock::from_time_t(facts.st_mtim.tv_sec) + std::chrono::microseconds(facts.st_mtim.tv_nsec / 1000);
  return written > *end + time_to_finish;
}

std::string files_for_people(const nlohmann::ordered_json& written) {
  std::map<std::string, std::string> lines;  // by kind
  const nlohmann::ordered_json none = nlohmann::ordered_json::object();
  const nlohmann::ordered_json missing = written.value("not_written", none);
  const nlohmann::ordered_json files = written.value("files", none);
  for (const auto& [kind, path] : missing.items())
    lines[kind] = fmt::format("{}: {} was not written\n", kind, printable(path.get<std::string>()));
  for (const auto& [kind, path] : files.items()) {
    const auto file = path.get<std::string>();
    const auto position = position_in_file(kind, file);
    const bool is_later = position.is_object() && was_written_later(file, written.value("ended", nlohmann::ordered_json()));
    const std::string text = is_later ? "written after its end" : position.is_object() ? position.at("text").get<std::string>() : "";
    lines[kind] = fmt::format("{}: {}{}\n", kind, printable(file), text.empty() ? "" : " (" + text + ")");
  }
  std::string text;
  for (const auto& [kind, line] : lines) text += line;
  return text;
}

std::string written_files::announced() const {
  std::string text;
  for (const auto& [kind, path] : expected()) text += fmt::format("{}: {}\n", kind, printable(path));
  return text;
}

}  // namespace penstock::cli
