// Returning buffers to the ring while the device refuses to record releases.
#include "actors/gpu_owner/batch_body.hpp"
#include "runtime/device/host_device.hpp"
#include "tests/runtime/device/faulty_device.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::gpu_owner;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t buffers = 4;

struct ring {
  ring() {
    const auto layout = lay_out(std::vector<tensor_spec>{{"data", dtype::uint8, {16}, tensor_role::data}}, 2);
    plan = std::make_shared<const device::transfer_plan>(device::plan_transfer(*layout, {}).value());
    REQUIRE(device->allocate(*plan, buffers));
  }
  ~ring() { device->close(); }
  [[nodiscard]] ready_batch ready(std::uint32_t buffer) const {
    return {buffer, 0, buffer, 0, buffer, buffer, {1, 2}, {}};
  }
  [[nodiscard]] Batch batch(std::uint32_t buffer) const {
    return batch_access::make(ready(buffer), plan, home);
  }

  std::shared_ptr<device_test::faulty_device> device =
      std::make_shared<device_test::faulty_device>(penstock::device::make_host_device());
  std::shared_ptr<const device::transfer_plan> plan;
  std::vector<std::uint32_t> given_back;
  std::shared_ptr<batch_home> home =
      std::make_shared<batch_home>(device, [this](std::uint32_t buffer) { given_back.push_back(buffer); });
};

}  // namespace

TEST_CASE("a release that cannot be recorded throws, and the caller keeps batch and buffer") {
  ring r;
  Batch batch = r.batch(2);
  r.device->refuse_releases(1);
  try {
    batch.release(stream_handle{});
    FAIL("it was released");
  } catch (const error& e) {
    CHECK(e.code() == errc::usage);
  }
  CHECK(r.given_back.empty());
  REQUIRE(batch);
  CHECK(batch.rows() == 2);
  batch.release(stream_handle{});
  CHECK(r.given_back == std::vector<std::uint32_t>{2});
  CHECK_FALSE(batch);
}

TEST_CASE("a batch destroyed while its release cannot be recorded returns its buffer later") {
  ring r;
  r.device->refuse_releases(3);
  { const Batch dropped = r.batch(0); }
  { const Batch dropped = r.batch(1); }
  CHECK(r.given_back.empty());
  r.device->refuse_releases(0);
  SECTION("when the next batch is destroyed") {
    { const Batch next = r.batch(2); }
    CHECK(std::set<std::uint32_t>(r.given_back.begin(), r.given_back.end()) ==
          std::set<std::uint32_t>{0, 1, 2});
  }
  SECTION("when the next batch is released") {
    r.batch(2).release(stream_handle{});
    CHECK(r.given_back.size() == 3);
  }
  SECTION("before the wait for the next batch") {
    hand_over queue;
    queue.stop();
    r.home->take_from(queue);
    CHECK(r.given_back.size() == 2);
  }
}

TEST_CASE(
    "a waiting consumer gets its batch even if the buffer is parked and becomes releasable only during the wait") {
  ring r;
  hand_over queue;
  r.home->open(
      r.device, [&](std::uint32_t buffer) { queue.put({r.ready(buffer)}); }, buffers);
  r.device->refuse_releases(20);
  { const Batch dropped = r.batch(3); }
  const auto taken = r.home->take_from(queue);
  REQUIRE(std::holds_alternative<ready_batch>(taken));
  CHECK(std::get<ready_batch>(taken).buffer == 3);
}

TEST_CASE("a consumer that waits while all buffers stay parked gets an error instead of waiting forever") {
  ring r;
  hand_over queue;
  r.home->open(
      r.device, [&](std::uint32_t buffer) { r.given_back.push_back(buffer); }, 2);
  r.device->refuse_releases(1'000'000);
  { const Batch dropped = r.batch(0); }
  { const Batch dropped = r.batch(1); }
  try {
    r.home->take_from(queue, 20ms);
    FAIL("it got a batch");
  } catch (const error& e) {
    CHECK(e.code() == errc::usage);
    CHECK(std::string(e.what()).starts_with(
        "no batch can be delivered: all 2 buffers belong to batches that were destroyed "));
  }
  // The capture may have ended by the next attempt.
  r.device->refuse_releases(0);
  queue.stop();
  r.home->take_from(queue, 20ms);
  CHECK(r.given_back.size() == 2);
}

TEST_CASE("the host's callback runs while a batch is awaited, and an exception from it loses no batch") {
  ring r;
  hand_over queue;
  int calls = 0;
  const auto look = [&] {
    if (++calls == 2) throw std::runtime_error("interrupted");
    if (calls == 3) queue.put({r.ready(1)});
  };
  CHECK_THROWS_AS(r.home->take_from(queue, 10s, look), std::runtime_error);
  const auto taken = r.home->take_from(queue, 10s, look);
  CHECK(calls == 3);
  REQUIRE(std::holds_alternative<ready_batch>(taken));
  CHECK(std::get<ready_batch>(taken).buffer == 1);
}

TEST_CASE("a batch used by several streams is either released once or still held") {
  ring r;
  Batch batch = r.batch(2);
  const std::vector<stream_handle> streams(3);
  r.device->refuse_releases(1);
  CHECK_THROWS_AS(batch.release_after(streams), error);
  REQUIRE(batch);
  batch.release_after(streams);
  CHECK(r.given_back == std::vector<std::uint32_t>{2});
  CHECK_THROWS_AS(batch.release_after(streams), error);
  r.batch(3).release_after({});
  CHECK(r.given_back == std::vector<std::uint32_t>{2, 3});
}

TEST_CASE("a batch that outlives its session is destroyed without a call to the device") {
  ring r;
  {
    const Batch late = r.batch(0);
    r.home->close();
  }
  CHECK(r.given_back.empty());
}
