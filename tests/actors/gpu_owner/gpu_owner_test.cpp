// The GPU owner actor with the host device behind a recorder, which notes who calls what from which thread
// and can fail at any call.
#include "actors/gpu_owner/gpu_owner.hpp"

#include "actors/protocol/actor_settings.hpp"
#include "runtime/device/host_device.hpp"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
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

/// Passes everything on to the host device.
class recording_device final : public device::device {
 public:
  result<penstock::device::identity> open() override { return note("open") ? inner_->open() : no(); }
  result<bool> attach(std::uint32_t p, std::span<std::byte> m) override {
    return note("attach") ? inner_->attach(p, m) : no();
  }
  result<void> detach(std::uint32_t p) override { return note("detach") ? inner_->detach(p) : no(); }
  result<void> allocate(const penstock::device::transfer_plan& plan, std::uint32_t n) override {
    return note("allocate") ? inner_->allocate(plan, n) : no();
  }
  result<void> submit(std::span<const penstock::device::upload_job> jobs) override {
    if (!note("submit")) return no();
    const std::lock_guard hold(mutex_);
    for (const penstock::device::upload_job& job : jobs) {
      if (!buffers_in_use_.insert(job.buffer).second) overlaps_ = true;
    }
    return inner_->submit(jobs);
  }
  result<std::vector<penstock::device::progress>> poll() override {
    if (!note("poll")) return no();
    return inner_->poll();
  }
  void on_progress(std::function<void()> waker) override { inner_->on_progress(std::move(waker)); }
  void close() noexcept override {
    note("close");
    inner_->close();
  }
  std::byte* address(std::uint32_t b) const override { return inner_->address(b); }
  result<void> read_back(std::uint32_t b, std::uint64_t o, std::span<std::byte> to) override {
    return inner_->read_back(b, o, to);
  }
  result<void> wait(std::uint32_t b, stream_handle s) override { return inner_->wait(b, s); }
  result<void> release(std::uint32_t b, stream_handle s) override { return inner_->release(b, s); }
  result<void> finish(stream_handle s) override { return inner_->finish(s); }
  [[nodiscard]] bool on_host() const noexcept override { return inner_->on_host(); }

  void fail_at(std::string call, int number) {
    failing_call_ = std::move(call);
    failing_number_ = number;
  }
  void buffer_is_free(std::uint32_t buffer) {
    const std::lock_guard hold(mutex_);
    buffers_in_use_.erase(buffer);
  }
  std::set<std::thread::id> threads() const {
    const std::lock_guard hold(mutex_);
    return threads_;
  }
  bool overlapped() const {
    const std::lock_guard hold(mutex_);
    return overlaps_;
  }

 private:
  bool note(const std::string& call) {
    const std::lock_guard hold(mutex_);
    threads_.insert(std::this_thread::get_id());
    return !(call == failing_call_ && ++failing_seen_ == failing_number_);
  }
  static tl::unexpected<failure> no() {
    return tl::unexpected(failure{errc::device_poisoned, "an illegal memory access was encountered", 700});
  }

  std::unique_ptr<penstock::device::device> inner_ = penstock::device::make_host_device();
  mutable std::mutex mutex_;
  std::set<std::thread::id> threads_;
  std::set<std::uint32_t> buffers_in_use_;
  bool overlaps_ = false;
  std::string failing_call_;
  int failing_number_ = 0;
  int failing_seen_ = 0;
};

constexpr std::uint32_t rows = 4;
constexpr arena::geometry shape{4096, 8, 2};

/// An owner with one partition of eight slots, each filled with its own number.
class stage {
 public:
  explicit stage(std::uint32_t buffers) : system_(settings_) {
    auto memory = arena::arena::create();
    REQUIRE(memory);
    REQUIRE(memory->size_and_seal(shape));
    auto mapped = arena::map_partition(memory->fd(), shape, 0);
    REQUIRE(mapped);
    partition_ = std::make_shared<arena::mapping>(std::move(*mapped));
    for (std::uint32_t s = 0; s < shape.slots; ++s) {
      std::memset(partition_->bytes().data() + shape.slot_offset(s), static_cast<int>(s), 1024);
    }
    const auto layout =
        lay_out(std::vector<tensor_spec>{{"data", dtype::uint8, {16}, tensor_role::data}}, rows);
    plan_ = std::make_shared<const device::transfer_plan>(device::plan_transfer(*layout, {}).value());
    buffers_ = buffers;
  }
  ~stage() {
    caf::anon_send(owner_, close_device{});
    system_.await_all_actors_done();
  }

  void begin() {
    owner_surroundings around;
    around.device = device;
    around.consumer = consumer;
    around.opened = [this](const penstock::device::identity&) { ++opened; };
    around.failed = [this](const failure& why) {
      ++failures;
      consumer->fail(why);
    };
    around.slots_released = [this](const std::vector<std::uint64_t>& uploads) { released += uploads.size(); };
    around.progressed = [](std::uint64_t, std::uint64_t, bool) {};
    owner_ = spawn_gpu_owner(system_, std::move(around));
    caf::anon_send(owner_, open_device{});
    caf::anon_send(owner_, prepare_device{plan_, buffers_});
    caf::anon_send(owner_, attach_partition{0, partition_, shape});
  }
  void upload(std::uint64_t number, std::uint32_t partition, std::uint32_t slot, std::size_t samples = rows) {
    caf::anon_send(owner_, upload_batches{{{number, 0, number, 0, number, partition, slot,
                                            std::vector<std::uint64_t>(samples, number)}}});
  }
  void release(std::uint32_t buffer) {
    device->buffer_is_free(buffer);
    if (consumer->give_back(buffer)) caf::anon_send(owner_, buffers_released{});
  }

  std::shared_ptr<recording_device> device = std::make_shared<recording_device>();
  std::shared_ptr<hand_over> consumer = std::make_shared<hand_over>();
  std::atomic<int> opened{0};
  std::atomic<int> failures{0};
  std::atomic<std::size_t> released{0};

 private:
  protocol::actor_settings settings_{2};
  caf::actor_system system_;
  std::shared_ptr<arena::mapping> partition_;
  std::shared_ptr<const penstock::device::transfer_plan> plan_;
  std::uint32_t buffers_ = 0;
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

TEST_CASE("when the consumer keeps all buffers, uploads wait and their slots with them") {
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

TEST_CASE("a batch that does not lie in the arena is refused by name") {
  stage s(2);
  s.begin();
  std::string expected;
  SECTION("a slot beyond the partition") {
    s.upload(7, 0, 8);
    expected = "batch 7 of epoch 0 does not lie in the arena: slot 8 of partition 0";
  }
  SECTION("a partition that was never attached") {
    s.upload(7, 1, 0);
    expected = "batch 7 of epoch 0 does not lie in the arena: slot 0 of partition 1";
  }
  SECTION("more rows than fit") {
    s.upload(7, 0, 0, rows + 1);
    expected = "batch 7 of epoch 0 does not lie in the arena: slot 0 of partition 0 with 5 rows";
  }
  auto taken = s.consumer->take();
  REQUIRE(std::holds_alternative<failure>(taken));
  CHECK(std::get<failure>(taken).message.starts_with(expected));
}

TEST_CASE("an error of any call is told once, and what comes later is ignored") {
  for (const char* call : {"open", "allocate", "attach", "submit", "poll"}) {
    for (const int number : {1, 2}) {
      const bool once_only = std::string(call) != "submit" && std::string(call) != "poll";
      if (once_only && number == 2) continue;
      CAPTURE(call, number);
      stage s(8);
      s.device->fail_at(call, number);
      s.begin();
      std::optional<failure> told;
      for (std::uint64_t upload = 1; !told; ++upload) {
        s.upload(upload, 0, upload % shape.slots);
        auto taken = s.consumer->take();
        if (auto* batch = std::get_if<ready_batch>(&taken)) s.release(batch->buffer);
        if (auto* why = std::get_if<failure>(&taken)) told = *why;
      }
      CHECK(told->code == errc::device_poisoned);
      s.upload(100, 0, 0);
      CHECK(s.failures == 1);
    }
  }
}
