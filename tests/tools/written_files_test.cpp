// Which files a session has written by its end.
#include "tools/penstock/control/written_files.hpp"

#include "runtime/schedule/epoch_book.hpp"
#include "tools/penstock/control/file_position.hpp"

#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

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

TEST_CASE("a state and a report are listed with the position that they contain") {
  const fs::path folder = fs::temp_directory_path() / ("penstock-positions-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const auto path = [&folder](const char* name) { return (folder / name).string(); };
  schedule::stream_state at;
  at.identity.batch_size = 8;
  at.next_batch = 96;
  at.delivered = 768;
  const std::vector<std::byte> bytes = schedule::serialise(at);
  std::ofstream(path("state"), std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  std::ofstream(path("report")) << R"({"epochs": [{"epoch": 0, "complete": true, "delivered": 6000, "expected": 6000},
                                                  {"epoch": 1, "complete": false, "delivered": 768, "expected": 6000}]})";
  std::ofstream(path("journal")) << "{}";
  cli::written_files files;
  files.are({{"files", {{"report", path("report")}, {"state", path("state")}, {"journal", path("journal")}}}});
  CHECK(files.for_people() == "journal: " + path("journal") + "\nreport: " + path("report") + " (epoch 1, 768 of 6000 samples delivered)\nstate: " +
                                  path("state") + " (epoch 0, 768 samples delivered)\n");
  CHECK(files.positions().at("state") == nlohmann::ordered_json{{"epoch", 0}, {"samples", 768}, {"text", "epoch 0, 768 samples delivered"}});
  CHECK_FALSE(files.positions().contains("journal"));
  auto past = files.as_json();  // the session has ended: a position that a later one wrote is not its own
  past["ended"] = "2100-01-01T00:00:00.000000Z";
  CHECK(cli::files_for_people(past) == files.for_people());
  CHECK_FALSE(cli::was_written_later(path("state"), nullptr));
  past["ended"] = "2000-01-01T00:00:00.000000Z";
  CHECK(cli::files_for_people(past) == "journal: " + path("journal") + "\nreport: " + path("report") + " (written after its end)\nstate: " + path("state") +
                                           " (written after its end)\n");
  CHECK(cli::was_written_later(path("state"), past.at("ended")));
  for (const char* const broken : {"", "{\"epochs\": [3]}", "{\"epochs\": []}", "[1]"}) {
    std::ofstream(path("report")) << broken;
    CHECK(cli::position_in_file("report", path("report")).is_null());
    CHECK(cli::position_in_file("state", path("report")).is_null());
  }
  CHECK(cli::position_in_file("state", "/dev/zero").is_null());
  fs::remove_all(folder);
}

TEST_CASE("a position in a group's epoch includes what all ranks had delivered when they divided the rest") {
  schedule::stream_state at;
  at.start = 1200;
  CHECK(cli::position_in_words(at) == "epoch 0, 1200 samples delivered by all ranks");
  at.delivered = 30;
  CHECK(cli::position_in_words(at) == "epoch 0, 1200 samples delivered by all ranks, then 30 by this one");
}

TEST_CASE("a position at the end of an epoch names that epoch") {
  schedule::stream_state at;
  CHECK(cli::position_in_words(at) == "epoch 0, 0 samples delivered");
  at.epoch = 3;
  CHECK(cli::position_in_words(at) == "epoch 2 was complete");
}
