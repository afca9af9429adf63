// The journal of events and the thread that passes them to a program's callback.
#include "runtime/telemetry/event_journal.hpp"

#include "runtime/base/log.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <future>
#include <stdexcept>

using namespace penstock;
using namespace penstock::telemetry;
using namespace std::chrono_literals;

namespace {

event with_text(std::string text) {
  event e;
  e.text = std::move(text);
  return e;
}

void note_many(event_journal& journal, int count) {
  for (int i = 0; i < count; ++i) journal.note(with_text(std::to_string(i)));
}

}  // namespace

TEST_CASE("events are numbered from one and read in order, starting at any number") {
  event_journal journal(10);
  CHECK(journal.events_after(0).events.empty());
  note_many(journal, 3);
  const event_reading all = journal.events_after(0);
  REQUIRE(all.events.size() == 3);
  CHECK(all.events[0].number == 1);
  CHECK(all.events[2].text == "2");
  CHECK(all.last == 3);
  CHECK(all.lost == 0);
  CHECK(journal.events_after(2).events.size() == 1);
  CHECK(journal.events_after(3).events.empty());
  CHECK(journal.events_after(1000).events.empty());
  CHECK(journal.events_after(0, 2).events.size() == 2);
}

TEST_CASE("a full journal drops the oldest events and reports how many a reader has missed") {
  event_journal journal(4);
  note_many(journal, 10);
  const event_reading found = journal.events_after(2);
  CHECK(found.lost == 4);
  REQUIRE(found.events.size() == 4);
  CHECK(found.events[0].number == 7);
  CHECK(found.last == 10);
}

TEST_CASE("a callback gets every event once and in order, including those from before it was set") {
  auto journal = std::make_shared<event_journal>();
  note_many(*journal, 100);
  std::vector<std::uint64_t> heard;
  event_caller caller(journal, [&](const event& e) { heard.push_back(e.number); });
  note_many(*journal, 100);
  caller.stop(10s);
  REQUIRE(heard.size() == 200);
  for (std::size_t i = 0; i < heard.size(); ++i) CHECK(heard[i] == i + 1);
}

TEST_CASE("a blocked callback delays no event source, and learns later how many events it missed") {
  auto journal = std::make_shared<event_journal>(8);
  std::promise<void> entered;
  std::promise<void> go_on;
  std::vector<event> heard;
  event_caller caller(journal, [&](const event& e) {
    heard.push_back(e);
    if (heard.size() == 1) {
      entered.set_value();
      go_on.get_future().wait();
    }
  });
  journal->note(with_text("first"));
  entered.get_future().wait();
  note_many(*journal, 1000);  // returns although there is no reader
  go_on.set_value();
  caller.stop(10s);
  REQUIRE(heard.size() == 9);
  CHECK(heard[1].dropped == 992);
  CHECK(heard[1].number == 994);
  CHECK(heard[2].dropped == 0);
}

TEST_CASE("an exception of a callback is logged, and the next event follows") {
  std::string logged;
  log::set_sink([&](log::level, std::string_view, std::string_view line) { logged += line; });
  auto journal = std::make_shared<event_journal>();
  int calls = 0;
  event_caller caller(journal, [&](const event&) {
    ++calls;
    throw std::runtime_error("my own fault");
  });
  note_many(*journal, 2);
  caller.stop(10s);
  log::set_sink({});
  CHECK(calls == 2);
  CHECK(logged.find("my own fault") != std::string::npos);
}

TEST_CASE("no call follows stop(), and a short timeout drops the waiting events") {
  auto journal = std::make_shared<event_journal>();
  std::promise<void> entered;
  std::promise<void> go_on;
  int calls = 0;
  event_caller caller(journal, [&](const event&) {
    if (++calls == 1) {
      entered.set_value();
      go_on.get_future().wait();
    }
  });
  note_many(*journal, 5);
  entered.get_future().wait();
  go_on.set_value();
  caller.stop(-1ms);
  const int told = calls;
  note_many(*journal, 5);
  CHECK(told <= 5);
  CHECK(calls == told);
}

TEST_CASE("stop() does not wait for a callback that called it") {
  auto journal = std::make_shared<event_journal>();
  std::promise<void> done;
  auto calls = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<event_caller> caller;
  std::promise<void> made;
  caller = std::make_unique<event_caller>(journal, [&, calls](const event&) {
    ++*calls;
    made.get_future().wait();
    caller.reset();
    done.set_value();
  });
  made.set_value();
  note_many(*journal, 3);
  REQUIRE(done.get_future().wait_for(10s) == std::future_status::ready);
  CHECK(*calls == 1);
}

TEST_CASE("an event in JSON has all fields, with null where there is no value") {
  event e;
  e.number = 7;
  e.time = std::chrono::system_clock::time_point(1'700'000'000'123'456us);
  e.kind = event_kind::worker_died;
  e.worker = 3;
  death_report death;
  death.signal = "SIGSEGV";
  e.death = std::make_shared<const death_report>(death);
  e.text = "worker 3 ended";
  const auto j = as_json(e);
  CHECK(j["time"] == "2023-11-14T22:13:20.123456Z");
  CHECK(j["kind"] == "worker_died");
  CHECK(j["worker"] == 3);
  CHECK(j["sample"].is_null());
  CHECK(j["death"]["signal"] == "SIGSEGV");
}

TEST_CASE("an event is read back complete and unchanged") {
  event e;
  e.time = std::chrono::system_clock::time_point(1'700'000'000'123'456us);
  e.kind = event_kind::worker_died;
  e.worker = 3;
  e.incarnation = 2;
  e.pid = 4127;
  e.sample = 17;
  e.path = "a/b.jpg";
  e.epoch = 1;
  e.sequence = 5;
  death_report death;
  death.signal = "SIGSEGV";
  death.last_output = "its last words";
  e.death = std::make_shared<const death_report>(death);
  e.text = "worker 3 ended";
  event_journal journal;
  journal.note(e);
  journal.note(with_text("another"));
  const auto read = journal.events_after(0).events;
  REQUIRE(read.size() == 2);
  e.number = 1;
  CHECK(as_json(read[0]) == as_json(e));
  CHECK(read[0].death->last_output == "its last words");
  CHECK_FALSE(read[1].death);
}
