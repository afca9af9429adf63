#include "actors/gpu_owner/owner_main.hpp"

#include "actors/child/child.hpp"
#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/gpu_owner/owner_batches.hpp"
#include "actors/gpu_owner/owner_jobs.hpp"
#include "actors/protocol/actor_settings.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/fit.hpp"
#include "actors/protocol/link.hpp"
#include "actors/protocol/log_level.hpp"
#include "actors/protocol/tensors.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/gpu_process_watch.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/io_thread.hpp"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <unistd.h>

#include <atomic>

namespace penstock {
namespace {

using namespace gpu_owner;

// The most in one message: more processes than a GPU can have contexts.
constexpr std::size_t gpu_processes_max = 256;

// What this process sends fits a frame. Lists of copied uploads are split (fit.hpp); the rest is bounded:
// deliveries + snapshot + the counters and lengths beside them, and the processes on the GPU.
constexpr std::size_t message_overhead_max = 256;
static_assert(owner_batches::deliveries_a_message * sizeof(protocol::wire_delivery) + snapshot_bytes_max +
                  message_overhead_max <=
              protocol::frame_bytes_max);
static_assert(gpu_processes_max * sizeof(protocol::wire_gpu_process) + message_overhead_max <=
              protocol::frame_bytes_max);

/// Batches in this process at once, from the upload order to the end of the sink's work: one per slot until
/// it is copied, one per buffer from then on.
std::size_t batches_at_once(const config& settings) {
  const std::size_t partitions = settings.loader.limits.max + 1;  // one for the sacrificial worker
  return partitions * settings.loader.slots_per_worker + settings.gpu.buffers;
}

int exit_code_of(errc why) {
  switch (why) {
    case errc::device_poisoned: return exit_codes::poisoned;
    case errc::device_hardware: return exit_codes::hardware;
    case errc::protocol: return exit_codes::protocol;
    case errc::sink:
    case errc::io: return exit_codes::failed;
    default: return exit_codes::configuration;
  }
}

class owner_program final : owner_news {
 public:
  owner_program();
  int run();

 private:
  void hear(protocol::to_owner&& message);
  void hear(const protocol::open_owner& order);
  void hear(const protocol::prepare_owner& order);
  void hear(const protocol::map_partition& order);
  void hear(protocol::upload_slots& order);
  void hear(protocol::upload_jobs& order);
  void hear(const protocol::stop_owner& order);
  void hear(protocol::wire_communicate& order);
  void opened(const device::identity& what) override;
  void failed(const failure& why) override { die(why); }
  void slots_released(std::vector<std::uint64_t> uploads) override;
  void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) override;
  void attached(const attached_partition& what) override;
  void communicator_changed(const group::communicator_state& state) override;
  void communicator_drawn(std::uint64_t number, const std::string& id) override;
  void communicator_stuck(const std::string& why) override;
  void run_sink();
  [[noreturn]] void make_room();
  void run_programs();
  upload_counts counts() { return {uploads_.exchange(0), bytes_.exchange(0), pinned_}; }
  void tell_processes(const std::vector<gpu_process>& seen);
  [[noreturn]] void die(const failure& why);
  [[noreturn]] void leave(int code);

  child::heartbeat pulse_;
  process::io_thread io_;
  protocol::actor_settings settings_{1};
  caf::actor_system system_{settings_};
  std::shared_ptr<protocol::owners_session_link> link_;
  std::shared_ptr<hand_over> consumer_ = std::make_shared<hand_over>();
  std::shared_ptr<device::device> device_;
  std::shared_ptr<batch_times> times_;               // like device_: none before open_owner
  std::shared_ptr<communicator_side> communicator_;  // like device_; none without a group that has one
  gpu_owner_actor owner_;
  std::optional<device::gpu_process_watch> watch_;  // reports to the link

  // Set on the io thread before plan_is_known_, read-only after that.
  config config_;
  protocol::open_owner order_;
  arena::geometry shape_;
  std::shared_ptr<const device::transfer_plan> plan_;
  std::promise<bool> plan_is_known_;  // false: asked to stop before that
  bool planned_ = false;

  std::atomic<bool> whole_{false};
  std::atomic<std::uint64_t> uploads_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> pinned_{false};
  std::atomic<stream_position> base_{0};  // batches before this one are in the program's state
  std::atomic<bool> alone_{false};        // the group is over
  std::atomic_flag dying_;

  // Used by the main thread only.
  std::shared_ptr<batch_home> home_;
  std::optional<arena::flight_writer> flight_;
};

owner_program::owner_program() {
  link_ =
      protocol::owners_session_link::make(io_.context(), unique_fd(protocol::child_fd::link),
                                          {[this](protocol::to_owner&& message) { hear(std::move(message)); },
                                           [](const std::string&) { ::_exit(exit_codes::parent_lost); }});
  link_->send(protocol::hello{protocol::hello::expected_magic, protocol::version, ::getpid()});
  boost::asio::post(io_.context(), [this] { link_->start(); });
}

void owner_program::leave(int code) {
  child::leave(code, [this](std::function<void()> then) { link_->when_sent(std::move(then)); });
}

void owner_program::tell_processes(const std::vector<gpu_process>& seen) {
  protocol::gpu_processes_seen news;
  for (const gpu_process& p : seen) {
    if (news.processes.size() == gpu_processes_max) break;
    news.processes.push_back({static_cast<std::uint64_t>(p.pid), p.bytes});
  }
  link_->send(news);
}

/// From any thread except io.
void owner_program::die(const failure& why) {
  // A lost context makes calls fail on several threads at once. Only the first one reports it.
  while (dying_.test_and_set()) ::pause();
  const int code = exit_code_of(why.code);
  link_->send(protocol::worker_gives_up{code, static_cast<std::uint8_t>(why.code), why.message});
  leave(code);
}

// ---- messages of the session (io thread) ------------------------------------------------------------------

void owner_program::hear(protocol::to_owner&& message) {
  std::visit([this](auto& m) { hear(m); }, message);
}

void owner_program::hear(const protocol::open_owner& order) {
  // The io thread cannot wait for itself to send the reason.
  const auto refuse_later = [this](const failure& why) { std::thread([this, why] { die(why); }).detach(); };
  if (order.version != protocol::version) {
    return refuse_later(
        {errc::protocol,
         fmt::format("the session speaks protocol {}, this GPU owner {}", order.version, protocol::version),
         0});
  }
  auto settings = protocol::config_from_bytes(order.config);
  if (!settings) return refuse_later(settings.error());
  log::set_level(as_log_level(settings->log.level));
  pulse_.adopt(order.flight_page);
  auto made = device::make_device(settings->gpu.device);
  if (!made) return refuse_later(made.error());
  config_ = std::move(*settings);
  order_ = order;
  device_ = std::move(*made);
  times_ = std::make_shared<batch_times>(batches_at_once(config_));
  base_ = order.base;
  if (config_.group.communicator == communicator_kind::nccl) {
    communicator_ = std::make_shared<communicator_side>(
        communicator_side::surroundings{config_.sampler.rank.value_or(0),
                                        config_.sampler.world_size,
                                        {config_.group.join_timeout, config_.group.abort_timeout},
                                        this});
  }

  owner_surroundings around;
  around.device = device_;
  around.consumer = consumer_;
  around.news = this;
  around.communicator = communicator_;
  if (!order.pool) around.times = times_;
  owner_ = spawn_gpu_owner(system_, std::move(around));
  caf::anon_send(owner_, open_device{});
}

void owner_program::hear(const protocol::prepare_owner& order) {
  if (planned_ || !device_) return;
  const auto plan = [&]() -> result<device::transfer_plan> {
    if (order_.pool) return device::plan_of_results(order.slot_bytes);
    auto tensors = protocol::from_wire(order.tensors);
    if (!tensors) return tl::unexpected(std::move(tensors.error()));
    const auto layout = lay_out(*tensors, order.batch_size);
    if (!layout) return tl::unexpected(layout.error());
    return device::plan_transfer(*layout,
                                 {config_.gpu.layout, config_.gpu.dtype, config_.gpu.mean, config_.gpu.std});
  }();
  if (!plan) {
    consumer_->fail(plan.error());
  } else {
    plan_ = std::make_shared<const device::transfer_plan>(*plan);
    shape_ = {order.slot_bytes, order.slots, order.partitions};
    caf::anon_send(owner_, prepare_device{plan_, shape_, config_.gpu.buffers, order_.pool});
  }
  planned_ = true;
  plan_is_known_.set_value(true);
}

void owner_program::hear(const protocol::map_partition& order) {
  if (!plan_) return;
  auto memory = arena::map_partition(protocol::child_fd::arena, shape_, order.partition);
  if (!memory) return consumer_->fail(memory.error());
  caf::anon_send(owner_,
                 attach_partition{order.partition, std::make_shared<mapping>(std::move(*memory)), shape_});
}

void owner_program::hear(protocol::upload_slots& order) {
  if (!plan_) return;
  upload_batches all;
  all.orders.reserve(order.uploads.size());
  const steady_time now = std::chrono::steady_clock::now();
  for (protocol::wire_upload& u : order.uploads) {
    batch_passage begins;
    begins.position = u.position;
    times_->lease(begins, now);
    all.orders.push_back(
        {u.upload, 0, 0, u.position, u.epoch, u.sequence, u.partition, u.slot, std::move(u.samples)});
  }
  caf::anon_send(owner_, std::move(all));
}

void owner_program::hear(protocol::upload_jobs& order) {
  if (plan_ && order_.pool) caf::anon_send(owner_, orders_of(std::move(order)));
}

void owner_program::hear(const protocol::stop_owner& order) {
  whole_ = order.whole;
  // Whole: everything was acknowledged, so nothing is in flight.
  consumer_->stop();
  if (!std::exchange(planned_, true)) plan_is_known_.set_value(false);
}

void owner_program::hear(protocol::wire_communicate& order) {
  using act = communicate::act;
  const auto what = static_cast<act>(order.what);
  if (what == act::agreed) base_ = std::max<stream_position>(base_, order.agreed);
  if (what == act::free) alone_ = true;
  if (owner_) caf::anon_send(owner_, communicate{what, order.number, std::move(order.id), order.agreed});
}

// ---- reports of the owner (its thread) --------------------------------------------------------------------

void owner_program::opened(const device::identity& what) {
  link_->send(protocol::owner_opened{what.kind, what.name, what.uuid.value_or("")});
  if (what.uuid) watch_.emplace(*what.uuid, [this](const auto& seen) { tell_processes(seen); });
}

void owner_program::slots_released(std::vector<std::uint64_t> uploads) {
  for (protocol::slots_copied& some : protocol::split_to_fit(std::move(uploads)))
    link_->send(std::move(some));
}

void owner_program::progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
  uploads_ += uploads;
  bytes_ += bytes;
  pinned_ = pinned;
}

void owner_program::attached(const attached_partition& what) {
  link_->send(protocol::partition_attached{what.partition, what.bytes, what.pinned,
                                           static_cast<std::uint64_t>(what.took.count())});
}

void owner_program::communicator_changed(const group::communicator_state& state) {
  link_->send(
      protocol::communicator_changed{state.number, static_cast<std::uint32_t>(state.at), state.cause, {}});
}

void owner_program::communicator_drawn(std::uint64_t number, const std::string& id) {
  link_->send(protocol::communicator_changed{number, 0, {}, id});
}

void owner_program::communicator_stuck(const std::string& why) {
  log::warn("group", "{}: ending this process", why);
  make_room();
}

// ---- batches (main thread) --------------------------------------------------------------------------------

int owner_program::run() {
  if (!plan_is_known_.get_future().get()) leave(exit_codes::finished);
  auto page = arena::flight_writer::map(protocol::child_fd::flight, order_.flight_page);
  if (page) flight_.emplace(std::move(*page));
  home_ = std::make_shared<batch_home>(device_, [this](std::uint32_t buffer) {
    if (consumer_->give_back(buffer)) caf::anon_send(owner_, buffers_released{});
  });
  if (order_.pool) {
    run_programs();
  } else {
    run_sink();
  }
  home_->close();
  caf::anon_send(owner_, close_device{});
  owner_ = gpu_owner_actor();
  system_.await_all_actors_done();
  leave(exit_codes::finished);
}

void owner_program::run_programs() {
  owner_jobs::surroundings around{consumer_.get(), link_.get(), flight_ ? &*flight_ : nullptr, {}, {}};
  around.give_back = [this](std::uint32_t buffer) { home_->give_back(buffer); };
  around.counts = [this] { return counts(); };
  job_programs programs(device_, config_.jobs.programs);
  if (auto ok = owner_jobs(std::move(around), programs).run(); !ok) die(ok.error());
}

/// This process ends so that another one goes on from the last agreed snapshot.
void owner_program::make_room() {
  while (dying_.test_and_set()) ::pause();
  leave(exit_codes::temporary);
}

void owner_program::run_sink() {
  owner_batches::surroundings around;
  around.consumer = consumer_.get();
  around.link = link_.get();
  around.flight = flight_ ? &*flight_ : nullptr;
  around.times = times_.get();
  around.plan = plan_;
  around.home = home_;
  around.device = device_;
  around.communicator = communicator_;
  around.order = &order_;
  around.settings = &config_;
  around.counts = [this] { return counts(); };
  around.base = &base_;
  around.alone = &alone_;
  around.whole = &whole_;
  const auto ok = owner_batches(std::move(around)).run();
  if (ok) return;
  if (!communicator_ || ok.error().code != errc::group_failed) die(ok.error());
  log::info("group", "{}: going back to the last step that all ranks have", ok.error().message);
  make_room();
}

}  // namespace

int owner_main() {
  if (!child::started_by_a_session("penstock's GPU owner")) return exit_codes::configuration;
  process::write_stack_when_dying();
  process::this_thread_works();
  owner_program owner;
  return owner.run();
}

}  // namespace penstock
