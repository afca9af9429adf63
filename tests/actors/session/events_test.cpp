// The events that an embedding program gets from a session through on_event.
#include "tests/actors/session/support.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

/// Collects events; read them after the session is closed.
struct ear {
  std::vector<event> heard;
  [[nodiscard]] event_callback listen() {
    return [this](const event& e) { heard.push_back(e); };
  }
  [[nodiscard]] std::vector<event> of(event_kind kind) const {
    std::vector<event> some;
    std::ranges::copy_if(heard, std::back_inserter(some), [&](const event& e) { return e.kind == kind; });
    return some;
  }
  /// The last event, ignoring workers that become ready after the run has ended.
  [[nodiscard]] event_kind last_but_for_workers() const {
    const auto is_of_worker = [](const event& e) {
      return e.kind == event_kind::worker_started || e.kind == event_kind::worker_ready ||
             e.kind == event_kind::memory_attached;
    };
    return std::find_if_not(heard.rbegin(), heard.rend(), is_of_worker)->kind;
  }
  [[nodiscard]] std::size_t place_of(event_kind kind) const {
    return static_cast<std::size_t>(std::ranges::find(heard, kind, &event::kind) - heard.begin());
  }
};

ear heard_from(const config& c) {
  ear e;
  session_options options = quietly();
  options.on_event = e.listen();
  Session session(c, options);
  try {
    while (session.next()) {
    }
  } catch (const error&) {
  }
  session.close();
  return e;
}

}  // namespace

TEST_CASE("an undisturbed run reports its start, its workers, each epoch and its end, in this order") {
  ear e;
  std::atomic<int> ready = 0;
  session_options options = quietly();
  options.on_event = [&, listen = e.listen()](const event& one) {
    listen(one);
    if (one.kind == event_kind::worker_ready) ++ready;
  };
  Session session(small(2), options);
  REQUIRE(session.next());
  // The run is so short that one worker can do all of it: without waiting, the other worker's events may
  // follow the end.
  REQUIRE(eventually([&] { return ready == 2; }));
  while (session.next()) {
  }
  session.close();
  REQUIRE_FALSE(e.heard.empty());
  CHECK(e.heard.front().kind == event_kind::run_started);
  CHECK(e.of(event_kind::run_finished).size() == 1);
  CHECK(e.heard.back().kind == event_kind::run_finished);
  CHECK(e.of(event_kind::stopping).empty());
  CHECK(e.of(event_kind::worker_started).size() == 2);
  CHECK(e.of(event_kind::worker_ready).size() == 2);
  CHECK(e.of(event_kind::worker_died).empty());
  CHECK(e.of(event_kind::epoch_done).size() == 2);
  CHECK(e.of(event_kind::epoch_done).at(1).epoch == 1);
  CHECK(e.place_of(event_kind::device_opened) < e.place_of(event_kind::worker_started));
  CHECK(e.place_of(event_kind::worker_started) < e.place_of(event_kind::worker_ready));
  REQUIRE(e.of(event_kind::memory_attached).size() == 2);
  CHECK(e.place_of(event_kind::stream_opened) < e.place_of(event_kind::memory_attached));
  const event attached = e.of(event_kind::memory_attached).front();
  REQUIRE(attached.worker);
  CHECK(attached.text.starts_with("the device registered the slots of worker " + std::to_string(*attached.worker) +
                                  " in "));
  CHECK(e.place_of(event_kind::stream_opened) < e.place_of(event_kind::epoch_done));
  for (std::size_t i = 0; i < e.heard.size(); ++i) CHECK(e.heard[i].number == i + 1);
}

TEST_CASE("a death is reported with its sample, and then its replacement") {
  config c = small(2);
  c.sampler.epochs = 1;
  c.dataset.faults = {{17, fault_kind::segv, 1, 1.0}};
  const ear e = heard_from(c);
  const auto deaths = e.of(event_kind::worker_died);
  REQUIRE(deaths.size() == 1);
  CHECK(deaths[0].sample == 17);
  REQUIRE(deaths[0].death);
  CHECK(deaths[0].death->signal == "SIGSEGV");
  CHECK(deaths[0].text.find("SIGSEGV, while loading sample 17") != std::string::npos);
  const auto replacements = e.of(event_kind::worker_restarted);
  REQUIRE(replacements.size() == 1);
  CHECK(replacements[0].worker == deaths[0].worker);
  CHECK(replacements[0].incarnation == 2);
  CHECK(replacements[0].pid != deaths[0].pid);
}

TEST_CASE("a failed and a quarantined sample are each reported once, with their names") {
  config c = small(2);
  c.sampler.epochs = 1;
  c.dataset.faults = {{5, fault_kind::raise, 0, 1.0}, {6, fault_kind::abort, 0, 1.0}};
  const ear e = heard_from(c);
  REQUIRE(e.of(event_kind::sample_failed).size() == 1);
  CHECK(e.of(event_kind::sample_failed)[0].sample == 5);
  REQUIRE(e.of(event_kind::sample_quarantined).size() == 1);
  CHECK(e.of(event_kind::sample_quarantined)[0].sample == 6);
  REQUIRE(e.of(event_kind::worker_died).size() == 3);
  CHECK(e.of(event_kind::worker_died)[2].number < e.of(event_kind::sample_quarantined)[0].number);  // the death comes before the quarantine
  // Not necessarily the last event: a worker's replacement may start while the session ends.
  CHECK(e.of(event_kind::run_finished).size() == 1);
}

TEST_CASE("a failed run reports its reason once") {
  config c = small(1);
  c.dataset.faults = {{5, fault_kind::raise, 0, 1.0}};
  c.loader.on_bad_sample = bad_sample_rule::fail;
  const ear e = heard_from(c);
  REQUIRE(e.of(event_kind::run_failed).size() == 1);
  CHECK(e.of(event_kind::run_failed)[0].text.find("sample 5") != std::string::npos);
}

TEST_CASE("a callback that blocks beyond the end of the stream does not block the stream") {
  std::promise<void> over;
  std::uint64_t batches = 0;
  session_options options = quietly();
  options.on_event = [&, done = over.get_future().share()](const event&) { done.wait(); };
  {
    Session session(small(2), options);
    while (session.next()) ++batches;
    over.set_value();
  }
  CHECK(batches == 26);
}

TEST_CASE("a callback may stop its session") {
  config c = small(2);
  c.dataset.samples = 100'000;
  c.dataset.faults = {{3, fault_kind::raise, 0, 1.0}};
  c.sampler.shuffle = false;
  Session* running = nullptr;
  session_options options = quietly();
  options.on_event = [&](const event& e) {
    if (e.kind == event_kind::sample_failed) running->stop();
  };
  Session session(c, options);
  running = &session;
  while (session.next()) {
  }
  CHECK(session.report().outcome == run_outcome::stopped);
  session.close();
}

TEST_CASE("pausing, resuming and stopping are reported only if they change something") {
  ear e;
  session_options options = quietly();
  options.on_event = e.listen();
  {
    Session session(small(), options);
    REQUIRE(session.next());
    session.pause();
    session.pause();
    session.resume();
    session.stop();
    session.stop();
  }
  CHECK(e.of(event_kind::paused).size() == 1);
  CHECK(e.of(event_kind::resumed).size() == 1);
  CHECK(e.of(event_kind::stopping).size() == 1);
  CHECK(e.of(event_kind::run_stopped).size() == 1);
}

TEST_CASE("a session destroyed at its end, or in the middle, reports no stop request") {
  for (const int batches : {3, 13, 26}) {
    ear e;
    session_options options = quietly();
    options.on_event = e.listen();
    {
      Session session(small(), options);
      for (int i = 0; i < batches; ++i) REQUIRE(session.next());
    }
    CHECK(e.of(event_kind::stopping).empty());
    CHECK(e.of(event_kind::run_stopped).size() == 1);
    CHECK(e.last_but_for_workers() == event_kind::run_stopped);
    CHECK(e.of(event_kind::epoch_done).size() == static_cast<std::size_t>(batches / 13));
  }
}
