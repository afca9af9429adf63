// Sessions as an embedding program sees them, with real workers and the host device.
#include "runtime/base/log.hpp"
#include "runtime/process/process_facts.hpp"
#include "tests/actors/session/support.hpp"

#include <penstock/session.hpp>

#include <catch2/catch_test_macros.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

using namespace penstock;
using penstock::testing::eventually;
using penstock::testing::quietly;
using penstock::testing::small;
using namespace std::chrono_literals;

namespace {

session_options with_digests() {
  session_options o = quietly();
  o.digests = true;
  return o;
}

std::set<pid_t> children() {
  std::set<pid_t> pids;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream in(task.path() / "children");
    pids.insert(std::istream_iterator<pid_t>(in), {});
  }
  return pids;
}

template <class Directory>
std::size_t entries_of(const Directory& path) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
}

std::vector<std::string> digests_of(const config& c) {
  Session session(c, with_digests());
  while (session.next()) {
  }
  std::vector<std::string> digests;
  for (const epoch_report& e : session.report().epochs) digests.push_back(e.digest.value_or("none"));
  return digests;
}

std::vector<std::uint64_t> samples_of(Session::Epoch epoch) {
  std::vector<std::uint64_t> all;
  for (const Batch& batch : epoch) all.insert(all.end(), batch.samples().begin(), batch.samples().end());
  return all;
}

}  // namespace

TEST_CASE("a batch larger than the dataset needs memory only for the dataset, and has all of its samples") {
  config c = small(1);
  c.dataset.samples = 10;
  c.dataset.bytes_per_sample = byte_size{1U << 20U};
  c.sampler.batch_size = 65'536;
  CHECK(Session::dry_run(c).slot_bytes < 11U << 20U);
  Session session(c, with_digests());
  const auto batch = session.next();
  REQUIRE(batch);
  CHECK(batch->rows() == 10);
  // Each of two ranks has half of the dataset.
  c.sampler.rank = 1;
  c.sampler.world_size = 2;
  CHECK(Session::dry_run(c).slot_bytes < 6U << 20U);
}

TEST_CASE("a session that is never iterated has no children, threads or descriptors") {
  const std::size_t descriptors = entries_of("/proc/self/fd");
  const std::size_t threads = entries_of("/proc/self/task");
  const Session session(small(8), quietly());
  CHECK(children().empty());
  CHECK(entries_of("/proc/self/fd") == descriptors);
  CHECK(entries_of("/proc/self/task") == threads);
}

TEST_CASE("the first demand starts exactly the configured number of workers") {
  Session session(small(3), quietly());
  REQUIRE(session.next());
  CHECK(eventually([] { return children().size() == 3; }));
}

TEST_CASE(
    "after one batch and an early exit no process remains, and at most the prefetch bound was prepared") {
  config c = small(2);
  c.dataset.samples = 10'000;
  c.loader.slots_per_worker = 2;
  c.gpu.buffers = 3;
  std::uint64_t prepared = 0;
  {
    Session session(c, quietly());
    const auto held = session.next();
    REQUIRE(held);
    // Wait until the pipeline is full and stops.
    const auto loaded = [&] {
      std::uint64_t sum = 0;
      for (const worker_status& w : session.status().workers) sum += w.samples;
      return sum;
    };
    std::uint64_t before = 1;
    REQUIRE(eventually([&] {
      ::poll(nullptr, 0, 600);  // longer than the tick at which the supervisor records the samples
      prepared = loaded();
      return std::exchange(before, prepared) == prepared;
    }));
  }
  CHECK(prepared <= (2 * 2 + 3) * c.sampler.batch_size);
  CHECK(children().empty());
}

TEST_CASE("a parent that holds a gigabyte does not make its workers bigger") {
  const auto private_memory_of_a_worker = [] {
    Session session(small(1), quietly());
    REQUIRE(session.next());
    const auto pids = children();
    REQUIRE(pids.size() == 1);
    return process::look_at(*pids.begin())->rss_anon_bytes;
  };
  const std::uint64_t beside_a_small_parent = private_memory_of_a_worker();
  std::vector<char> ballast(std::size_t{1} << 30, 1);
  const std::uint64_t beside_a_large_one = private_memory_of_a_worker();
  CHECK(ballast[ballast.size() / 2] == 1);
  CHECK(beside_a_large_one < beside_a_small_parent + (4U << 20U));
}

TEST_CASE("the owner opens its device before any worker is started, and two epochs run through") {
  std::mutex mutex;
  std::vector<std::string> lines;
  log::set_sink([&](log::level, std::string_view part, std::string_view line) {
    const std::lock_guard hold(mutex);
    lines.push_back(std::string(part) + ": " + std::string(line));
  });
  config c = small(8);
  c.log.level = log_level::debug;
  std::vector<std::string> digests;
  {
    Session session(c, with_digests());
    while (session.next()) {
    }
    for (const epoch_report& e : session.report().epochs) digests.push_back(*e.digest);
  }
  log::set_sink({});
  const auto opened = std::ranges::find(lines, "gpu: opened host memory");
  const auto started = std::ranges::find_if(
      lines, [](const std::string& l) { return l.find("started (pid") != std::string::npos; });
  REQUIRE(opened != lines.end());
  REQUIRE(started != lines.end());
  CHECK(opened < started);
  CHECK(digests == digests_of(small(1)));
}

TEST_CASE("both epochs are loaded by the same processes") {
  Session session(small(3), quietly());
  REQUIRE(session.next());
  REQUIRE(eventually([] { return children().size() == 3; }));
  const auto first = children();
  while (auto batch = session.next()) {
    if (batch->epoch() == 1) CHECK(children() == first);
  }
  CHECK(session.report().workers_started == 3);
}

TEST_CASE("an epoch can be iterated with for, repeatedly and out of order, and is always the same") {
  Session session(small(), quietly());
  const auto first = samples_of(session.epoch(0));
  CHECK(first.size() == 100);
  CHECK(std::set(first.begin(), first.end()).size() == 100);
  const auto fourth = samples_of(session.epoch(3));
  CHECK(fourth.size() == 100);
  CHECK(fourth != first);
  CHECK(samples_of(session.epoch(0)) == first);
  for (const Batch& batch : session.epoch(0)) {
    CHECK(batch.sequence() == 0);
    break;  // leave in the middle of the epoch
  }
  CHECK(samples_of(session.epoch(0)) == first);
  CHECK(samples_of(session.epoch(1)) != first);
}

TEST_CASE("several sessions run at the same time without affecting each other") {
  config other = small();
  other.sampler.seed = 7;
  const auto expected = digests_of(small());
  const auto expected_other = digests_of(other);
  Session a(small(), with_digests());
  Session b(other, with_digests());
  bool more_a = true;
  bool more_b = true;
  while (more_a || more_b) {
    if (more_a) more_a = a.next().has_value();
    if (more_b) more_b = b.next().has_value();
  }
  CHECK(a.report().epochs[1].digest == expected[1]);
  CHECK(b.report().epochs[1].digest == expected_other[1]);
}

TEST_CASE("a closed session leaves no descriptor, thread, child or memory behind") {
  const auto expected = digests_of(small());
  const std::size_t descriptors = entries_of("/proc/self/fd");
  const std::size_t threads = entries_of("/proc/self/task");
  config other = small(3);
  other.dataset.fill = fill_kind::memset;
  other.sampler.batch_size = 16;
  for (int i = 0; i < 5; ++i) {
    digests_of(other);
    CHECK(digests_of(small()) == expected);
  }
  CHECK(children().empty());
  CHECK(entries_of("/proc/self/fd") == descriptors);
  CHECK(eventually([&] { return entries_of("/proc/self/task") <= threads; }));
}

TEST_CASE("a running session is destroyed within half a second, even when its workers are busy for minutes") {
  config c = small(4);
  c.sampler.shuffle = false;
  const auto time_to_destroy = [&c] {
    auto session = std::make_unique<Session>(c, quietly());
    REQUIRE(session->next());
    REQUIRE(eventually([] { return children().size() == 4; }));
    const auto begin = std::chrono::steady_clock::now();
    session.reset();
    CHECK(children().empty());
    return std::chrono::steady_clock::now() - begin;
  };
  const auto otherwise = time_to_destroy();  // takes milliseconds, unless the machine is busy
  c.dataset.faults = {{50, fault_kind::slow, 0, 600.0}, {51, fault_kind::slow, 0, 600.0}};
  CHECK(time_to_destroy() < 500ms + otherwise);
}

TEST_CASE("a session does not change the program's signal handlers, mask or SIGCHLD") {
  static volatile std::sig_atomic_t hits = 0;
  struct sigaction mine {};
  mine.sa_handler = [](int) { hits = hits + 1; };
  std::vector<struct sigaction> before(NSIG);
  ::sigaction(SIGUSR1, &mine, nullptr);
  for (int s = 1; s < NSIG; ++s) ::sigaction(s, nullptr, &before[static_cast<std::size_t>(s)]);
  sigset_t mask_before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  digests_of(small());
  for (int s = 1; s < NSIG; ++s) {
    struct sigaction after {};
    ::sigaction(s, nullptr, &after);
    CHECK(after.sa_handler == before[static_cast<std::size_t>(s)].sa_handler);
  }
  sigset_t mask_after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  for (int s = 1; s < NSIG; ++s) CHECK(::sigismember(&mask_before, s) == ::sigismember(&mask_after, s));
  ::kill(::getpid(), SIGUSR1);
  CHECK(eventually([] { return hits == 1; }));
  ::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("the library does not reap a child of the program") {
  Session session(small(), quietly());
  REQUIRE(session.next());
  const pid_t mine = ::fork();
  if (mine == 0) ::_exit(42);
  while (session.next()) {
  }
  int status = 0;
  CHECK(::waitpid(mine, &status, 0) == mine);
  CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("a program that ignores SIGCHLD still gets its stream, but deaths have no known cause") {
  const auto old = ::signal(SIGCHLD, SIG_IGN);
  config c = small(2);
  c.dataset.faults = {{5, fault_kind::segv, 1, 1.0}};
  c.sampler.epochs = 1;
  run_report report;
  {
    Session session(c, with_digests());
    while (session.next()) {
    }
    report = session.report();
  }
  ::signal(SIGCHLD, old);
  CHECK(report.epochs.at(0).delivered == 100);
  REQUIRE(report.deaths.size() == 1);
  CHECK(report.deaths[0].cause == death_cause::unknown);
  CHECK(report.deaths[0].sample == 5);
}

TEST_CASE("a stop from another thread ends the loop, and the report says stopped") {
  config c = small();
  c.dataset.samples = 100'000;
  Session session(c, quietly());
  std::uint64_t batches = 0;
  std::jthread stopper;
  while (session.next()) {
    if (++batches == 5) stopper = std::jthread([&] { session.stop(); });
  }
  CHECK(batches >= 5);
  CHECK(session.report().outcome == run_outcome::stopped);
  CHECK(session.report().batches == batches);
}

TEST_CASE("after the end of the stream every further request returns no batch") {
  Session session(small(), quietly());
  while (session.next()) {
  }
  CHECK_FALSE(session.next());
  CHECK_FALSE(session.next());
  CHECK(session.report().outcome == run_outcome::finished);
}

TEST_CASE("misusing a batch is an error that names the mistake") {
  Session session(small(), quietly());
  auto batch = session.next();
  REQUIRE(batch);
  CHECK_THROWS_AS(batch->tensor("image"), error);
  CHECK(batch->tensor("data").shape == std::vector<std::uint64_t>{8, 4096});
  batch->release_unused();
  CHECK_FALSE(*batch);
  CHECK_THROWS_AS(batch->release_unused(), error);
  CHECK_THROWS_AS(batch->rows(), error);
}

TEST_CASE("a batch that outlives its session has no memory, and its error says so") {
  std::optional<Batch> batch;
  {
    Session session(small(), quietly());
    batch = session.next();
    REQUIRE(batch);
  }
  CHECK_THROWS_AS(batch->read_back("data"), error);
  batch.reset();  // the session no longer exists
}

TEST_CASE("holding all buffers stops the stream until one is returned") {
  config c = small();
  c.gpu.buffers = 2;
  Session session(c, quietly());
  auto first = session.next();
  auto second = session.next();
  REQUIRE(second);
  std::optional<Batch> third;
  std::jthread taker([&] { third = session.next(); });
  first->release_unused();
  taker.join();
  REQUIRE(third);
  CHECK(third->sequence() == 2);
}

TEST_CASE("a state taken in the middle resumes exactly there, in another session with other workers") {
  const auto whole = digests_of(small());
  std::vector<std::byte> state;
  {
    Session session(small(3), with_digests());
    for (int i = 0; i < 17; ++i) REQUIRE(session.next());
    state = session.state();
  }
  session_options options = with_digests();
  options.state = state;
  Session session(small(1), options);
  std::uint64_t batches = 0;
  while (session.next()) ++batches;
  CHECK(batches == 26 - 17);
  const auto report = session.report();
  REQUIRE(report.epochs.size() == 1);
  CHECK(report.epochs[0].epoch == 1);
  CHECK(report.epochs[0].from_batch == 4);
  CHECK(report.epochs[0].complete);
  CHECK(report.epochs[0].digest == whole[1]);
}

TEST_CASE("a nonsensical state is refused at construction") {
  const std::vector<std::byte> nonsense(100, std::byte{7});
  session_options options = quietly();
  options.state = nonsense;
  try {
    const Session session(small(), options);
    FAIL("accepted");
  } catch (const error& e) {
    CHECK(e.code() == errc::state_mismatch);
  }
}

namespace {

/// All samples from a state to the end of the stream.
std::vector<std::uint64_t> samples_after(const std::vector<std::byte>& state) {
  session_options options = quietly();
  options.state = state;
  Session session(small(), options);
  std::vector<std::uint64_t> all;
  while (auto batch = session.next()) all.insert(all.end(), batch->samples().begin(), batch->samples().end());
  return all;
}

}  // namespace

TEST_CASE(
    "before the stream is open its state is the beginning, and resuming from it gives the whole stream") {
  std::vector<std::vector<std::byte>> states;
  std::mutex mutex;
  {
    Session* asked = nullptr;
    session_options options = quietly();
    options.on_event = [&](const event& e) {
      // After the dataset was listed, and before any worker described it.
      if (e.kind != event_kind::device_opened) return;
      const std::lock_guard hold(mutex);
      states.push_back(asked->state());
    };
    Session session(small(), options);
    asked = &session;
    states.push_back(session.state());  // no worker had been started
    REQUIRE(session.next());
  }
  REQUIRE(states.size() == 2);
  const auto whole = samples_after({});
  CHECK(whole.size() == 200);
  for (const auto& state : states) CHECK(samples_after(state) == whole);
}

TEST_CASE("a resumed session that never opens its stream returns the state that it was given") {
  std::vector<std::byte> saved;
  {
    Session session(small(), with_digests());
    for (int i = 0; i < 5; ++i) REQUIRE(session.next());
    saved = session.state();
  }
  session_options options = with_digests();
  options.state = saved;
  Session session(small(), options);
  CHECK(session.state() == saved);
  session.close();
  CHECK(session.state() == saved);
}

TEST_CASE("state() fails while the scheduler does not answer, and later calls succeed again") {
  config c = small(1);
  c.log.level = log_level::warn;
  c.dataset.faults = {{3, fault_kind::raise, 0, 1.0}};
  c.sampler.shuffle = false;
  std::promise<void> stuck;
  std::promise<void> go_on;
  std::atomic<bool> once = false;
  log::set_sink([&](log::level, std::string_view part, std::string_view) {
    if (part != "scheduler" || once.exchange(true)) return;
    stuck.set_value();
    go_on.get_future().wait();
  });
  {
    Session session(c, quietly());
    std::jthread taker([&] { static_cast<void>(session.next()); });
    stuck.get_future().wait();
    std::optional<errc> code;
    try {
      static_cast<void>(session.state());
    } catch (const error& e) {
      code = e.code();
    }
    CHECK(code == errc::timed_out);
    go_on.set_value();
    taker.join();
    CHECK_FALSE(session.state().empty());
    CHECK(session.report().epochs.size() == 1);
  }
  log::set_sink({});
}

TEST_CASE("state() and report() are answered while the session closes, and the last answers stay available") {
  for (int round = 0; round < 20; ++round) {
    Session session(small(), quietly());
    for (int i = 0; i < 3; ++i) REQUIRE(session.next());
    std::vector<std::byte> seen;
    std::string thrown;
    std::atomic<bool> closed = false;
    std::promise<void> asking;
    std::jthread asker([&] {
      try {
        for (bool first = true; !closed || first; first = false) {
          seen = session.state();
          static_cast<void>(session.report());
          if (first) asking.set_value();
        }
      } catch (const std::exception& e) {
        thrown = e.what();
      }
    });
    asking.get_future().wait();
    session.close();
    closed = true;
    asker.join();
    CHECK(thrown.empty());
    CHECK(session.state() == seen);
    CHECK(session.report().epochs.at(0).batches == 3);
  }
}

TEST_CASE(
    "an epoch iterated again after an early exit is reported complete, and a state of its second pass resumes there") {
  const auto whole = digests_of(small());
  std::vector<std::byte> state;
  {
    Session session(small(), with_digests());
    int batches = 0;
    for (const Batch& batch : session.epoch(0)) {
      static_cast<void>(batch);
      if (++batches == 5) break;
    }
    batches = 0;
    for (const Batch& batch : session.epoch(0)) {
      static_cast<void>(batch);
      if (++batches == 8) state = session.state();
    }
    const auto epochs = session.report().epochs;
    REQUIRE(epochs.size() == 2);
    CHECK_FALSE(epochs[0].complete);
    CHECK(epochs[0].batches == 5);
    CHECK(epochs[1].complete);
    CHECK(epochs[1].batches == 13);
    CHECK(epochs[1].delivered == 100);
    CHECK(epochs[1].digest == whole[0]);
    CHECK(epochs[1].seconds > 0);
  }
  session_options options = with_digests();
  options.state = state;
  Session session(small(), options);
  while (session.next()) {
  }
  const auto epochs = session.report().epochs;
  REQUIRE(epochs.size() == 2);
  CHECK(epochs[0].from_batch == 8);
  CHECK(epochs[0].complete);
  CHECK(epochs[0].digest == whole[0]);
  CHECK(epochs[1].digest == whole[1]);
}

TEST_CASE("a state is at most 1 KiB in the middle of an epoch of a thousand batches") {
  config c = small();
  c.dataset.samples = 1000;
  c.sampler.batch_size = 1;
  c.sampler.epochs = 1;
  Session session(c, with_digests());
  for (int i = 0; i < 700; ++i) REQUIRE(session.next());
  CHECK(session.state().size() <= 1024);
}
