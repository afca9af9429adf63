// Which files a session has written by its end.
#include "tools/penstock/control/written_files.hpp"

#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

using namespace penstock;
namespace fs = std::filesystem;

TEST_CASE("existing files count as written, but a report only if it is new") {
  const fs::path folder = fs::temp_directory_path() / ("penstock-written-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const auto path = [&folder](const char* name) { return (folder / name).string(); };
  for (const char* name : {"report", "state"}) {
    std::ofstream(path(name)) << "x";
    fs::last_write_time(path(name), fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  cli::written_files files;
  files.are({{"files", {{"report", path("report")}, {"state", path("state")}, {"journal", path("journal")}}}});
  CHECK(files.as_json() == nlohmann::ordered_json{{"files", {{"state", path("state")}}},
                                                  {"not_written", {{"journal", path("journal")}, {"report", path("report")}}}});
  CHECK(files.for_people() == "journal: " + path("journal") + " was not written\nreport: " + path("report") +
                                  " was not written\nstate: " + path("state") + "\n");
  std::ofstream(path("report")) << "y";
  CHECK(files.as_json().at("files").contains("report"));
  CHECK(files.announced() == "journal: " + path("journal") + "\nreport: " + path("report") + "\nstate: " + path("state") + "\n");
  // A session has ended after writing only its report: the state is an earlier session's.
  cli::written_files past(std::chrono::system_clock::now() - std::chrono::minutes(1));
  past.are({{"files", {{"report", path("report")}, {"state", path("state")}}}});
  CHECK(past.as_json() == nlohmann::ordered_json{{"files", {{"report", path("report")}}}, {"not_written", {{"state", path("state")}}}});
  fs::remove_all(folder);
}

TEST_CASE("a quarantine file is named only if it exists") {
  cli::written_files files;
  files.are({{"files", {{"quarantine", "/nonexistent/quarantine"}, {"state", "/nonexistent/state"}}}});
  CHECK(files.as_json() == nlohmann::ordered_json{{"files", nlohmann::ordered_json::object()},
                                                  {"not_written", {{"state", "/nonexistent/state"}}}});
  CHECK(files.for_people() == "state: /nonexistent/state was not written\n");
  files.are({{"files", {{"quarantine", "/dev/null"}}}});
  CHECK(files.for_people() == "quarantine: /dev/null\n");
}

TEST_CASE("a session of an older version names no files") {
  cli::written_files files;
  files.are({{"stopping", true}});
  CHECK(files.as_json() == nlohmann::ordered_json{{"files", nlohmann::ordered_json::object()}});
  CHECK(files.for_people().empty());
}
