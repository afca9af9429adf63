// Misuse of the public API: each mistake gives a typed error; none is undefined behaviour.
#include "runtime/arena/memory_budget.hpp"
#include "tests/actors/session/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

/// The error that `call` throws; fails if it throws none.
template <class Call>
failure thrown_by(Call call) {
  try {
    call();
  } catch (const error& e) {
    return e.as_failure();
  }
  FAIL("nothing was thrown");
  return {};
}

failure refused(const config& c) {
  return thrown_by([&] { const Session session(c, quietly()); });
}

}  // namespace

TEST_CASE("a config built in code must follow the rules of config files, and errors name the keys") {
  config c = small();
  c.loader.workers = 0;
  CHECK(refused(c).code == errc::config);
  CHECK(refused(c).message.starts_with("loader.workers: "));
  c = small();
  c.sampler.batch_size = 0;
  c.gpu.buffers = 0;
  c.gpu.device = "gpu";
  const std::string message = refused(c).message;
  CHECK(message.find("sampler.batch_size: ") != std::string::npos);
  CHECK(message.find("\ngpu.buffers: ") != std::string::npos);
  CHECK(message.find("\ngpu.device: ") != std::string::npos);
  c = small();
  c.dataset.type = dataset_type::raw;
  CHECK(refused(c).message.find("dataset.path: ") != std::string::npos);
  c = small(5);
  c.loader.limits.max = 4;
  CHECK(refused(c).message.starts_with("loader.workers: "));
  CHECK(thrown_by([&] { static_cast<void>(Session::dry_run(c)); }).code == errc::config);
}

TEST_CASE("an automatic rank comes from the launcher's environment in code, too") {
  config c = small(1);
  c.sampler.epochs = 1;
  c.sampler.rank = std::nullopt;
  for (const char* name :
       {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX"})
    ::unsetenv(name);
  CHECK(refused(c).message.starts_with("sampler.rank: "));
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "4", 1);
  Session session(c, quietly());
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
  while (session.next()) {
  }
  CHECK(session.report().samples == 25);
}

TEST_CASE("a moved-from Session reports that, and its destructor does nothing") {
  Session a(small(), quietly());
  REQUIRE(a.next());
  Session::Epoch range = a.epoch(1);
  Session b = std::move(a);
  CHECK(thrown_by([&] { a.next(); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(a.status()); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(a.epoch(0)); }).code == errc::usage);
  CHECK(thrown_by([&] { range.next(); }).code == errc::usage);
  a.stop();
  a.close();
  CHECK(b.next()->sequence() == 1);
}

TEST_CASE("only the newer of two iterations of a session continues") {
  Session session(small(), quietly());
  Session::Epoch first = session.epoch(0);
  REQUIRE(first.next());
  Session::Epoch second = session.epoch(1);
  REQUIRE(second.next());
  CHECK(thrown_by([&] { first.next(); }).code == errc::usage);
  CHECK(second.next()->sequence() == 1);
  REQUIRE(session.next());
  CHECK(thrown_by([&] { second.next(); }).code == errc::usage);
}

TEST_CASE("a range is iterated once, and an iterator stops at its end") {
  Session session(small(), quietly());
  Session::Epoch range = session.epoch(0);
  auto it = range.begin();
  CHECK(thrown_by([&] { static_cast<void>(range.begin()); }).code == errc::usage);
  while (it != range.end()) ++it;
  CHECK(thrown_by([&] { ++it; }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(*it); }).code == errc::usage);
}

TEST_CASE("if two threads call next() at once, one of them is refused") {
  config c = small();
  c.gpu.buffers = 1;
  Session session(c, quietly());
  auto held = session.next();
  REQUIRE(held);
  // No batch arrives before `held` is released, so both threads are in next() at once and one of them must get the error.
  std::atomic<int> refused_ones = 0;
  const auto take = [&] {
    try {
      static_cast<void>(session.next());
    } catch (const error& e) {
      if (e.code() == errc::usage) ++refused_ones;
    }
  };
  std::jthread one(take);
  std::jthread two(take);
  CHECK(eventually([&] { return refused_ones == 1; }));
  held->release_unused();
}

TEST_CASE("after close() no batch can be taken, and closing again has no effect") {
  Session session(small(), quietly());
  auto held = session.next();
  REQUIRE(held);
  session.close();
  session.close();
  CHECK(thrown_by([&] { session.next(); }).code == errc::usage);
  CHECK(thrown_by([&] { session.epoch(0).next(); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(held->read_back("data")); }).code == errc::usage);
  CHECK(thrown_by([&] { held->wait({}); }).code == errc::usage);
  CHECK(*held);
  CHECK(thrown_by([&] { static_cast<void>(held->tensor("data")); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(held->tensors()); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(held->rows()); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(held->samples()); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(held->epoch()); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(held->records()); }).code == errc::usage);
  CHECK(thrown_by([&] { static_cast<void>(held->digest()); }).code == errc::usage);
  CHECK(thrown_by([&] { held->release({}); }).code == errc::usage);
  CHECK(thrown_by([&] { held->release_unused(); }).code == errc::usage);
  {
    const Batch moved = std::move(*held);
    CHECK(moved);
  }  // and destroyed
  CHECK(session.report().batches == 1);
  Session never(small(), quietly());
  never.close();
  CHECK(thrown_by([&] { never.next(); }).code == errc::usage);
}

TEST_CASE("a batch kept beyond stop() can still be read and returned") {
  Session session(small(), quietly());
  auto held = session.next();
  REQUIRE(held);
  session.stop();
  CHECK_FALSE(session.next());
  CHECK(held->read_back("data").size() == 8 * 4096);
  held->release_unused();
}

TEST_CASE("the state of another dataset is refused with the difference named") {
  std::vector<std::byte> state;
  {
    Session session(small(), quietly());
    REQUIRE(session.next());
    state = session.state();
  }
  config other = small();
  other.dataset.samples = 101;
  other.sampler.seed = 99;
  session_options options = quietly();
  options.state = state;
  Session session(other, options);
  const failure why = thrown_by([&] { session.next(); });
  CHECK(why.code == errc::state_mismatch);
  CHECK(why.message.find("seed was 1234 and is 99") != std::string::npos);
  CHECK(why.message.find("fingerprint") != std::string::npos);
  CHECK(thrown_by([&] { session.next(); }).code == errc::state_mismatch);
}

TEST_CASE("a session outside any group is refused a communicator") {
  ::setenv("PENSTOCK_NCCL", "/no/such/library", 1);  // the host device may have a stand-in communicator for tests
  config c = small();
  c.group.communicator = communicator_kind::nccl;
  CHECK(refused(c).code == errc::config);
  CHECK(refused(c).message.find("session_options::join_group") != std::string::npos);
  ::unsetenv("PENSTOCK_NCCL");
}

TEST_CASE("an epoch number that is too large is refused") {
  Session session(small(), quietly());
  CHECK(thrown_by([&] { session.epoch(~std::uint64_t{0}).next(); }).code == errc::usage);
}

TEST_CASE("the pool is scaled, and a worker replaced, while the stream continues") {
  config c = small(1);
  c.dataset.samples = 2000;
  c.loader.limits.max = 4;
  Session session(c, quietly());
  session.scale(2);  // before the first demand
  std::uint64_t batches = 0;
  REQUIRE(session.next());
  const auto ready = [&] {
    std::size_t count = 0;
    for (const worker_status& w : session.status().workers) count += w.state == child_state::ready ? 1 : 0;
    return count;
  };
  CHECK(eventually([&] { return ready() == 2; }));
  session.scale(4);
  CHECK(eventually([&] { return ready() == 4; }));
  session.restart(1);
  CHECK(eventually([&] { return session.status().workers.at(1).incarnation == 2 && ready() == 4; }));
  session.drain(0);
  CHECK(eventually([&] { return ready() == 3; }));
  CHECK(thrown_by([&] { session.scale(0); }).code == errc::usage);
  CHECK(thrown_by([&] { session.scale(5); }).code == errc::usage);
  CHECK(thrown_by([&] { session.restart(17); }).code == errc::usage);
  while (session.next()) ++batches;
  CHECK(batches == 499);
  CHECK(session.report().samples == 4000);
}

TEST_CASE("an endless run lasts until the stream ends, and one of negative duration returns at once") {
  Session session(small(), quietly());
  CHECK_FALSE(session.run_for(std::chrono::milliseconds::min()));
  CHECK(session.run_for(std::chrono::milliseconds::max()));
  CHECK(session.report().outcome == run_outcome::finished);
}

namespace {

/// A session with one worker, whose slots take this share of the available memory.
config hungry(double share) {
  std::uint64_t available = ~std::uint64_t{0};
  for (const arena::memory_limit& limit : arena::memory_limits())
    available = std::min(available, limit.available);
  config c = small(1);
  c.loader.slots_per_worker = 1;
  c.loader.slot_bytes = byte_size{static_cast<std::uint64_t>(static_cast<double>(available) * share)};
  return c;
}

}  // namespace

TEST_CASE("the sacrificial worker's memory is counted before the first worker has allocated its own") {
  Session session(hungry(0.6), quietly());
  const failure why = thrown_by([&] { session.next(); });
  CHECK(why.code == errc::out_of_memory);
  CHECK(why.message.find("1 worker + 1 sacrificial, each 1 slot x ") != std::string::npos);
}

TEST_CASE("workers requested while the session starts are counted too") {
  // The worker describes its dataset only after scale() was called.
  namespace fs = std::filesystem;
  const fs::path ordered = fs::temp_directory_path() / ("penstock-scaled-" + std::to_string(::getpid()));
  const fs::path worker = fs::read_symlink("/proc/self/exe").parent_path() / "penstock-worker";
  config c = hungry(0.05);
  c.loader.command = {
      "/bin/sh", "-c",
      "while [ ! -e '" + ordered.string() + "' ]; do sleep 0.01; done; exec '" + worker.string() + "'"};
  Session* starting = nullptr;
  session_options options = quietly();
  options.on_event = [&](const event& e) {
    if (e.kind != event_kind::run_started) return;
    starting->scale(40);
    std::ofstream(ordered) << "now";
  };
  Session session(c, options);
  starting = &session;
  const failure why = thrown_by([&] { session.next(); });
  CHECK(why.code == errc::out_of_memory);
  CHECK(why.message.find("40 workers + 1 sacrificial") != std::string::npos);
  fs::remove(ordered);
}
