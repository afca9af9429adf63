// The contents of a session's record at each moment, for a made-up session.
#include "actors/host/record_keeper.hpp"

#include "actors/host/control_verbs.hpp"
#include "actors/host/run_events.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <thread>

using namespace penstock;
using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

namespace {

/// A session that has a journal, a log and a status.
struct made_up {
  made_up() {
    std::string name = "/tmp/penstock-keeper-XXXXXX";
    ::mkdtemp(name.data());
    folder = name;
    ::setenv("XDG_RUNTIME_DIR", name.c_str(), 1);
  }
  ~made_up() {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(folder);
  }
  made_up(const made_up&) = delete;
  made_up& operator=(const made_up&) = delete;

  host::record_source source(std::size_t bytes_max = control::record_bytes_max) {
    host::session_controls controls;
    controls.status = [this] {
      session_status s;
      s.session = "photos";
      s.samples_delivered = delivered;
      s.quarantined = quarantined;
      s.config_file = padding;
      return s;
    };
    controls.limits = [] { return host::limits_told(); };
    controls.worker_rates = [] { return std::map<std::uint32_t, double>(); };
    controls.tuning = [] { return nlohmann::ordered_json(); };
    controls.events = [this](std::uint64_t after, std::size_t limit) {
      return journal->events_after(after, limit);
    };
    controls.quarantine = [this] {
      std::vector<quarantine_report> all;
      for (std::uint64_t i = 0; i < quarantined; ++i) all.push_back({i, std::nullopt, 3, {"SIGSEGV"}});
      return all;
    };
    controls.logs = &logs;
    return {"photos", std::chrono::system_clock::now(), 8, work_kind::samples, std::nullopt, journal, host::make_request_handler(std::move(controls)),
            bytes_max};
  }
  void tell(const std::string& text) { journal->note(host::event_of(event_kind::scaled, text)); }
  void write(const std::string& text) {
    logs.wrote("worker/0", 1, text, 0);
  }

  /// The lines of one kind.
  [[nodiscard]] static std::vector<json> lines(const std::string& kind) {
    std::vector<json> found;
    for (const auto& record : control::find_records()) {
      const auto lines = control::read_record(record.path);
      for (const std::string& line : lines.value_or(std::vector<std::string>())) {
        const json parsed = json::parse(line);
        if (parsed.contains(kind)) found.push_back(parsed.at(kind));
      }
    }
    return found;
  }
  template <class Condition>
  static bool soon(Condition holds) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }

  std::filesystem::path folder;
  std::shared_ptr<telemetry::event_journal> journal = std::make_shared<telemetry::event_journal>();
  process::log_store logs;
  std::string padding;  // makes the status large
  std::atomic<std::uint64_t> delivered = 0;
  std::atomic<std::uint64_t> quarantined = 0;
};

}  // namespace

TEST_CASE("events are in the record while the session runs, and its status and output follow soon") {
  made_up s;
  host::record_keeper keeper(s.source());
  s.tell("one");
  s.write("a line");
  CHECK(made_up::soon([] { return made_up::lines("event").size() == 1; }));
  CHECK(made_up::soon([] { return made_up::lines("log").size() == 1 && !made_up::lines("status").empty(); }));
  CHECK(made_up::lines("record").at(0).at("session") == "photos");
  CHECK(made_up::lines("ended").empty());
  CHECK(control::find_records().at(0).live);
}

TEST_CASE("the record lists quarantined samples, and says nothing about them before there are any") {
  made_up s;
  host::record_keeper keeper(s.source());
  CHECK(made_up::soon([] { return !made_up::lines("status").empty(); }));
  CHECK(made_up::lines("quarantine").empty());
  s.quarantined = 1;
  CHECK(made_up::soon([] { return made_up::lines("quarantine").size() == 1; }));
  s.quarantined = 2;
  keeper.stop();
  const auto all = made_up::lines("quarantine");
  REQUIRE(all.size() == 2);
  CHECK(all.back().at("quarantine").size() == 2);
  CHECK(all.back().at("of") == "samples");
}

TEST_CASE("a sample that was released is not in the record's last list") {
  made_up s;
  s.quarantined = 1;
  host::record_keeper keeper(s.source());
  CHECK(made_up::soon([] { return made_up::lines("quarantine").size() == 1; }));
  s.quarantined = 0;
  keeper.stop();
  const auto all = made_up::lines("quarantine");
  REQUIRE(all.size() == 2);
  CHECK(all.back().at("quarantine").empty());
}

TEST_CASE("at its end a session writes everything that happened until then, exactly once") {
  made_up s;
  host::record_keeper keeper(s.source());
  for (int i = 0; i < 700; ++i) s.tell(std::to_string(i));  // more lines than one answer can hold
  s.write("the last line");
  s.delivered = 17;
  keeper.stop();
  keeper.stop();
  const auto events = made_up::lines("event");
  REQUIRE(events.size() == 700);
  CHECK(events.back().at("text") == "699");
  CHECK(made_up::lines("log").size() == 1);
  CHECK(made_up::lines("status").back().at("samples_delivered") == 17);
  CHECK(made_up::lines("ended").size() == 1);
  CHECK_FALSE(control::find_records().at(0).live);
}

TEST_CASE("a record that grows too large is rewritten with the newest part of everything") {
  constexpr std::size_t limit = 256 * 1024;
  made_up s;
  host::record_keeper keeper(s.source(limit));
  std::uintmax_t largest = 0;
  for (int i = 0; i < 4000; ++i) {
    s.tell(std::to_string(i) + std::string(400, 'x'));
    if (i % 50 == 49) {
      CHECK(made_up::soon([&] {
        const auto told = made_up::lines("event");
        return !told.empty() && told.back().at("number") == i + 1;
      }));
      largest = std::max(largest, control::find_records().at(0).bytes);
    }
  }
  keeper.stop();
  CHECK(largest <= limit);
  CHECK(largest > limit / 2);
  const auto events = made_up::lines("event");
  CHECK(events.back().at("number") == 4000);
  CHECK(events.front().at("number") > 1000);  // the oldest ones were dropped
  CHECK(made_up::lines("record").size() == 1);
  CHECK(made_up::lines("ended").size() == 1);
}

TEST_CASE("a session whose folder cannot be written runs without a record") {
  made_up s;
  ::setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
  host::record_keeper keeper(s.source());
  s.tell("one");
  keeper.stop();
  CHECK(control::find_records().empty());
}

TEST_CASE(
    "a long status is at most a second or two old, and the time of the last write shows a live session") {
  made_up s;
  s.padding = std::string(10'000, 'x');
  host::record_keeper keeper(s.source());
  CHECK(made_up::soon([] { return !made_up::lines("status").empty(); }));
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    s.delivered = i;
    CHECK(made_up::soon([i] { return made_up::lines("status").back().at("samples_delivered") == i; }));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 15s);  // takes 3 s on an idle machine
  const auto path = control::find_records().at(0).path;
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - 1h);
  CHECK(made_up::soon([&] { return std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(path) < 1min; }));
}
