// The GPU owner actor with the host device behind a decorator that records each call with its thread, and can
// fail or hang at any call.
#include "actors/gpu_owner/gpu_owner.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/device/host_device.hpp"
#include "tests/runtime/device/faulty_device.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <future>
#include <set>
#include <thread>

using namespace penstock;
using namespace penstock::gpu_owner;

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t rows = 4;
constexpr arena::geometry shape{4096, 8, 2};

/// An owner with one partition of eight slots, each filled with its own number.
class stage final : owner_listener {
 public:
  explicit stage(std::uint32_t buffers) {
    auto memory = arena::arena::create();
    REQUIRE(memory);
    REQUIRE(memory->size_and_seal(shape));
    auto mapped = arena::map_partition(memory->fd(), shape, 0);
    REQUIRE(mapped);
    partition_ = std::make_shared<mapping>(std::move(*mapped));
    for (std::uint32_t s = 0; s < shape.slots; ++s) {
      std::memset(partition_->bytes().data() + shape.slot_offset(s), static_cast<int>(s), 1024);
    }
    const auto layout =
        lay_out(std::vector<tensor_spec>{{"data", dtype::uint8, {16}, tensor_role::data}}, rows);
    plan_ = std::make_shared<const device::transfer_plan>(device::plan_transfer(*layout, {}).value());
    buffers_ = buffers;
  }
  ~stage() { end(); }
  /// Makes the owner close its device and exit.
  void end() {
    if (!owner_) return;
    actors::tell(owner_, close_device{});
    owner_ = nullptr;
    system_.await_all_actors_done();
  }

  /// An owner for job results: slots hold plain bytes, and the first result creates the ring.
  void begin_for_jobs() {
    plan_ = std::make_shared<const penstock::device::transfer_plan>(
        penstock::device::plan_of_results(shape.slot_bytes));
    for_jobs_ = true;
    begin();
  }
  void upload_job(std::uint64_t number, std::uint32_t slot, std::uint64_t offset, std::uint64_t bytes) {
    upload_order order{number, 0, 0, number, 0, 0, 0, slot, {number}};
    order.job = job_upload{offset, bytes, 0, false, "f"};
    actors::tell(owner_, upload_batches{{order}});
  }

  void begin() {
    owner_deps deps;
    deps.device = device;
    deps.consumer = consumer;
    deps.listener = this;
    deps.flight_deadline = flight_deadline;
    owner_ = spawn_gpu_owner(system_, std::move(deps));
    actors::tell(owner_, open_device{});
    actors::tell(owner_, prepare_device{plan_, shape, buffers_, for_jobs_});
    actors::tell(owner_, attach_partition{0, partition_, shape});
  }
  void upload(std::uint64_t number, std::uint32_t partition, std::uint32_t slot, std::size_t samples = rows) {
    actors::tell(owner_, upload_batches{{{number, 0, 0, number, 0, number, partition, slot,
                                          std::vector<std::uint64_t>(samples, number)}}});
  }
  void release(std::uint32_t buffer) {
    device->buffer_is_free(buffer);
    if (consumer->give_back(buffer)) actors::tell(owner_, buffers_released{});
  }

  std::shared_ptr<device_test::faulty_device> device =
      std::make_shared<device_test::faulty_device>(penstock::device::make_host_device());
  nanoseconds flight_deadline = 30s;
  std::shared_ptr<hand_over> consumer = std::make_shared<hand_over>();
  std::atomic<int> times_opened{0};
  std::atomic<int> failures{0};
  std::atomic<std::size_t> released{0};
  std::uint64_t last_released = 0;   // used only on the owner's thread
  std::atomic<bool> in_order{true};  // whether slots were released as uploads 1, 2, 3, ...

 private:
  void opened(const penstock::device::identity&) override { ++times_opened; }
  void failed(const failure& why) override {
    ++failures;
    consumer->fail(why);
  }
  void slots_released(std::vector<std::uint64_t> uploads) override {
    for (const std::uint64_t upload : uploads) in_order = in_order && upload == ++last_released;
    released += uploads.size();
  }
  void progressed(std::uint64_t, std::uint64_t, bool) override {}

  actors::actor_system system_{2, protocol::local_messages};
  std::shared_ptr<mapping> partition_;
  std::shared_ptr<const penstock::device::transfer_plan> plan_;
  std::uint32_t buffers_ = 0;
  bool for_jobs_ = false;
  gpu_owner_actor owner_;
};

}  // namespace

TEST_CASE("batches reach the consumer in the order of their upload, with the bytes of their slots") {
  stage s(2);
  s.begin();
  for (std::uint32_t i = 0; i < 8; ++i) s.upload(i + 1, 0, i);
  for (std::uint32_t i = 0; i < 8; ++i) {
    auto taken = s.consumer->take();
    REQUIRE(std::holds_alternative<ready_batch>(taken));
    const auto& batch = std::get<ready_batch>(taken);
    CHECK(batch.upload == i + 1);
    CHECK(batch.samples.size() == rows);
    CHECK(static_cast<std::uint32_t>(*s.device->address(batch.buffer)) == i);
    s.release(batch.buffer);
  }
}

TEST_CASE("all calls to the device come from one thread, and no buffer is written while it is in use") {
  stage s(3);
  s.begin();
  for (std::uint32_t i = 0; i < 200; ++i) s.upload(i + 1, 0, i % 8);
  for (std::uint32_t i = 0; i < 200; ++i) s.release(std::get<ready_batch>(s.consumer->take()).buffer);
  CHECK(s.device->threads().size() == 1);
  CHECK_FALSE(s.device->threads().contains(std::this_thread::get_id()));
  CHECK_FALSE(s.device->overlapped());
}

TEST_CASE("a slot is reported as copied before its batch is ready, and both in the order of the uploads") {
  stage s(3);
  s.begin();
  for (std::uint32_t i = 0; i < 200; ++i) s.upload(i + 1, 0, i % 8);
  for (std::uint32_t i = 0; i < 200; ++i) {
    const auto batch = std::get<ready_batch>(s.consumer->take());
    CHECK(batch.upload == i + 1);
    CHECK(s.released >= batch.upload);
    s.release(batch.buffer);
  }
  CHECK(s.in_order);
}

TEST_CASE("while the consumer keeps all buffers, uploads wait and keep their slots") {
  stage s(2);
  s.begin();
  for (std::uint32_t i = 0; i < 8; ++i) s.upload(i + 1, 0, i);
  const auto first = std::get<ready_batch>(s.consumer->take());
  const auto second = std::get<ready_batch>(s.consumer->take());
  CHECK(s.released == 2);
  s.release(first.buffer);
  const auto third = std::get<ready_batch>(s.consumer->take());
  CHECK(third.buffer == first.buffer);
  CHECK(s.released == 3);
  s.release(second.buffer);
  s.release(third.buffer);
}

TEST_CASE("a batch outside the arena is refused and named") {
  stage s(2);
  s.begin();
  std::string expected;
  SECTION("a slot beyond the partition") {
    s.upload(7, 0, 8);
    expected = "batch 7 of epoch 0 is not in the arena: it would be in slot 8 of partition 0";
  }
  SECTION("a partition that was never attached") {
    s.upload(7, 1, 0);
    expected = "batch 7 of epoch 0 is not in the arena: it would be in slot 0 of partition 1";
  }
  SECTION("more rows than fit") {
    s.upload(7, 0, 0, rows + 1);
    expected = "batch 7 of epoch 0 is not in the arena: it would be in slot 0 of partition 0 with 5 rows";
  }
  auto taken = s.consumer->take();
  REQUIRE(std::holds_alternative<failure>(taken));
  CHECK(std::get<failure>(taken).message.starts_with(expected));
}

TEST_CASE("an error of any call is reported once, and later messages are ignored") {
  for (const bool sticky : {false, true}) {
    for (const char* call : {"open", "allocate", "attach", "submit", "poll"}) {
      for (const int number : {1, 2, 5}) {
        const bool once_only = std::string(call) != "submit" && std::string(call) != "poll";
        if (once_only && number != 1) continue;
        CAPTURE(call, number, sticky);
        stage s(2);
        device_test::fault fault{call, number};
        fault.sticky = sticky;
        fault.why.code = sticky ? errc::device_poisoned : errc::device_unavailable;
        s.device->fail(fault);
        s.begin();
        std::optional<failure> told;
        for (std::uint64_t upload = 1; !told; ++upload) {
          s.upload(upload, 0, upload % shape.slots);
          auto taken = s.consumer->take();
          if (auto* batch = std::get_if<ready_batch>(&taken)) s.release(batch->buffer);
          if (auto* why = std::get_if<failure>(&taken)) told = *why;
        }
        CHECK(told->code == fault.why.code);
        s.upload(100, 0, 0);
        s.end();
        CHECK(s.failures == 1);
        CHECK(s.device->calls_after_a_sticky_error() == 0);
        CHECK(s.device->calls("close") == 1);
        CHECK(s.device->threads().size() == 1);
      }
    }
  }
}

TEST_CASE(
    "if the device has no memory for the buffers, the consumer gets that reason, whatever happens later") {
  stage s(2);
  device_test::fault fault{"allocate", 1};
  fault.why = {errc::device_out_of_memory, "allocating 2 buffers (asked 1 GiB, free 2 MiB of 3 GiB)", 2};
  fault.sticky = false;
  s.device->fail(fault);
  s.begin();
  s.upload(1, 0, 0);
  auto taken = s.consumer->take();
  REQUIRE(std::holds_alternative<failure>(taken));
  CHECK(std::get<failure>(taken).code == errc::device_out_of_memory);
  s.end();
  CHECK(s.device->calls("submit") == 0);
}

TEST_CASE("job results reach the consumer with their own bytes and job, at any offset in a slot") {
  stage s(2);
  s.begin_for_jobs();
  s.upload_job(1, 3, 0, 1000);
  s.upload_job(2, 4, 960, 64);
  s.upload_job(3, 5, 4096, 0);
  for (std::uint64_t upload = 1; upload <= 3; ++upload) {
    auto taken = s.consumer->take();
    REQUIRE(std::holds_alternative<ready_batch>(taken));
    const auto& result = std::get<ready_batch>(taken);
    CHECK(result.upload == upload);
    REQUIRE(result.job);
    CHECK(result.job->function == "f");
    if (upload < 3) CHECK(static_cast<std::uint32_t>(*s.device->address(result.buffer)) == upload + 2);
    s.release(result.buffer);
  }
  CHECK(s.device->calls("allocate") == 1);
}

TEST_CASE("a job result outside its slot is refused without being read") {
  stage s(2);
  s.begin_for_jobs();
  s.upload_job(1, 3, 4032, 65);
  auto taken = s.consumer->take();
  REQUIRE(std::holds_alternative<failure>(taken));
  CHECK(std::get<failure>(taken).code == errc::protocol);
}

TEST_CASE(
    "when the device has no memory for the ring, the job that needs it is refused, and the next one may succeed") {
  stage s(2);
  device_test::fault fault{"allocate", 1};
  fault.why = {errc::device_out_of_memory, "allocating 2 buffers (asked 1 GiB, free 2 MiB of 3 GiB)", 2};
  fault.sticky = false;
  s.device->fail(fault);
  s.begin_for_jobs();
  s.upload_job(1, 3, 0, 100);
  auto taken = s.consumer->take();
  REQUIRE(std::holds_alternative<ready_batch>(taken));
  REQUIRE(std::get<ready_batch>(taken).refused);
  CHECK(std::get<ready_batch>(taken).refused->message == fault.why.message);
  CHECK(s.released == 1);
  s.upload_job(2, 4, 0, 100);
  taken = s.consumer->take();
  REQUIRE(std::holds_alternative<ready_batch>(taken));
  CHECK_FALSE(std::get<ready_batch>(taken).refused);
  CHECK(s.failures == 0);
  s.release(std::get<ready_batch>(taken).buffer);
}

TEST_CASE("the error for a device held by another process has the device's own message") {
  stage s(2);
  device_test::fault fault{"open", 1};
  fault.why = {errc::device_busy,
               "creating a context on cuda:0: CUDA-capable device(s) is/are busy or unavailable", 46};
  fault.sticky = false;
  s.device->fail(fault);
  s.begin();
  auto taken = s.consumer->take();
  REQUIRE(std::holds_alternative<failure>(taken));
  CHECK(std::get<failure>(taken).code == errc::device_busy);
  CHECK(std::get<failure>(taken).message == fault.why.message);
  s.end();
  CHECK(s.device->calls("allocate") == 0);
}

TEST_CASE("a copy that never ends fails at the deadline, and the error names its batch") {
  stage s(2);
  s.flight_deadline = 100ms;
  s.device->hang();
  s.begin();
  s.upload(7, 0, 3);
  auto taken = s.consumer->take();
  REQUIRE(std::holds_alternative<failure>(taken));
  CHECK(std::get<failure>(taken).code == errc::device_poisoned);
  CHECK(std::get<failure>(taken).message.find("batch 7 of epoch 0 has not finished for 100 ms") !=
        std::string::npos);
}

TEST_CASE("an owner suspended for longer than the deadline does not report a hung device") {
  stage s(2);
  s.flight_deadline = 100ms;
  s.device->hang_and_stand_still();
  s.begin();
  s.upload(7, 0, 3);
  s.device->wait_until_it_stands();
  // Three deadlines must pass here in real time.
  const auto end = std::chrono::steady_clock::now() + 3 * s.flight_deadline;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  s.device->go_on();
  const auto batch = s.consumer->take();
  REQUIRE(std::holds_alternative<ready_batch>(batch));
  CHECK(s.failures == 0);
  s.release(std::get<ready_batch>(batch).buffer);
}

TEST_CASE("a copy may wait for the consumer's stream for any length of time") {
  stage s(2);
  s.flight_deadline = 20ms;
  s.device->hang();
  s.device->say_that_it_waits_for_the_consumer(true);
  s.begin();
  s.upload(7, 0, 3);
  while (s.device->calls("poll") < 20) std::this_thread::yield();  // several deadlines
  CHECK(s.failures == 0);
  s.device->say_that_it_waits_for_the_consumer(false);
  CHECK(std::holds_alternative<failure>(s.consumer->take()));
}

TEST_CASE("an idle owner does not poll its device") {
  stage s(2);
  s.flight_deadline = 20ms;
  s.begin();
  s.upload(1, 0, 0);
  const auto batch = std::get<ready_batch>(s.consumer->take());
  const int while_it_was_under_way = s.device->calls("poll");
  // After ten deadlines, every scheduled check has run.
  const auto end = std::chrono::steady_clock::now() + 200ms;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  CHECK(s.device->calls("poll") == while_it_was_under_way);
  s.release(batch.buffer);
}
