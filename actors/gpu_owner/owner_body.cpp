#include "actors/gpu_owner/owner_body.hpp"

#include "actors/caf/caf.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/fit.hpp"
#include "actors/protocol/tensors.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/base/worker_slots.hpp"

namespace penstock::gpu_owner {
namespace {

// The maximum number of entries in one message: fewer processes can have contexts on a GPU.
constexpr std::size_t gpu_processes_max = 256;

// Room for the counters and lengths in a message. The two assertions show that each message of this process
// fits a frame; lists of copied uploads are split (fit.hpp).
constexpr std::size_t message_overhead_max = 256;
static_assert(owner_batches::deliveries_a_message * sizeof(protocol::wire_delivery) + snapshot_bytes_max +
                  message_overhead_max <=
              protocol::frame_bytes_max);
static_assert(gpu_processes_max * sizeof(protocol::wire_gpu_process) + message_overhead_max <=
              protocol::frame_bytes_max);

/// The maximum number of batches in this process, from the upload order to the end of the sink's work: one
/// per slot until the slot is copied, then one per buffer.
std::size_t batches_at_once(const config& settings) {
  const std::size_t partitions = places_of(settings.loader);
  return partitions * most_slots_of_a_worker(settings.loader) + settings.gpu.buffers;
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

}  // namespace

void owner_body::tell_processes(const std::vector<gpu_process>& seen) {
  protocol::gpu_processes_seen news;
  for (const gpu_process& p : seen) {
    if (news.processes.size() == gpu_processes_max) break;
    news.processes.push_back({static_cast<std::uint64_t>(p.pid), p.bytes});
  }
  link_->send(news);
}

/// Call on any thread but the link's.
void owner_body::die(const failure& why) {
  const int code = exit_code_of(why.code);
  deps_.host->ends(code, protocol::worker_gives_up{code, static_cast<std::uint8_t>(why.code), why.message});
}

// ---- messages of the session (the link's thread) ----------------------------------------------------------------

void owner_body::hear(protocol::to_owner&& message) {
  const std::lock_guard hold(hearing_);
  if (deaf_) return;
  std::visit([this](auto& m) { hear(m); }, message);
}

void owner_body::hear(const protocol::open_owner& order) {
  if (planned_.decided) return;
  if (order.version != protocol::version) {
    return refuse_order({errc::protocol,
                         fmt::format("the session speaks protocol {}, but this GPU owner speaks {}",
                                     order.version, protocol::version),
                         0});
  }
  auto settings = protocol::config_from_bytes(order.config);
  if (!settings) return refuse_order(settings.error());
  deps_.host->introduced(order, *settings);
  auto made = device::make_device(settings->gpu.device);
  if (!made) return refuse_order(made.error());
  config_ = std::move(*settings);
  order_ = order;
  device_ = std::move(*made);
  times_ = std::make_shared<batch_times>(batches_at_once(config_));
  marks_.base = order.base;
  if (config_.group.communicator == communicator_kind::nccl) {
    communicator_ = std::make_shared<communicator_side>(
        communicator_side::deps{config_.sampler.rank.value_or(0),
                                        config_.sampler.world_size,
                                        {config_.group.join_timeout, config_.group.abort_timeout},
                                        this});
  }

  owner_deps deps;
  deps.device = device_;
  deps.consumer = consumer_;
  deps.listener = this;
  deps.communicator = communicator_;
  if (!order.pool) deps.times = times_;
  owner_ = spawn_gpu_owner(*deps_.system, std::move(deps));
  actors::tell(owner_, open_device{});
}

/// Lets run() report the failure. The link's thread must not report it, because reporting waits until the
/// link's thread has sent the reason.
void owner_body::refuse_order(failure why) {
  planned_.refused = std::move(why);
  planned_.decide(false);
}

void owner_body::hear(const protocol::prepare_owner& order) {
  if (planned_.decided || !device_) return;
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
    actors::tell(owner_, prepare_device{plan_, shape_, config_.gpu.buffers, order_.pool});
  }
  planned_.decide(true);
}

void owner_body::hear(const protocol::map_partition& order) {
  if (!plan_) return;
  auto memory = arena::map_partition(deps_.arena, shape_, order.partition);
  if (!memory) return consumer_->fail(memory.error());
  actors::tell(owner_,
               attach_partition{order.partition, std::make_shared<mapping>(std::move(*memory)), shape_});
}

void owner_body::hear(protocol::upload_slots& order) {
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
  actors::tell(owner_, std::move(all));
}

void owner_body::hear(protocol::upload_jobs& order) {
  if (plan_ && order_.pool) actors::tell(owner_, orders_of(std::move(order)));
}

void owner_body::hear(const protocol::stop_owner& order) {
  marks_.whole = order.whole;
  // If `whole`, every batch has been acknowledged, so none is in flight.
  consumer_->stop();
  // Otherwise work in progress no longer counts. Inside a session's process, only the communicator's end
  // stops a program that waits for other ranks.
  if (!order.whole && deps_.outlived) say_end();
  planned_.decide(false);
}

void owner_body::hear(protocol::wire_communicate& order) {
  using act = communicate::act;
  const auto what = static_cast<act>(order.what);
  if (what == act::agreed) marks_.base = std::max<stream_position>(marks_.base, order.agreed);
  if (what == act::free) marks_.alone = true;
  if (owner_) actors::tell(owner_, communicate{what, order.number, std::move(order.id), order.agreed});
}

void owner_body::check_deadlines(steady_time now) {
  if (communicator_) communicator_->check_deadlines(now);
}

void owner_body::ask_to_leave(const failure& why) {
  const std::lock_guard hold(hearing_);
  if (deaf_) return;  // run() is returning
  consumer_->fail(why);
  planned_.decide(false);
  say_end();
}

/// Ends the communicator, if there is one. Call with hearing_ held, or when no more messages are handled.
void owner_body::say_end() {
  if (communicator_ && owner_) actors::tell(owner_, communicate{communicate::act::end});
}

// ---- reports of the owner (its thread) --------------------------------------------------------------------

void owner_body::opened(const device::identity& what) {
  link_->send(protocol::owner_opened{what.kind, what.name, what.uuid.value_or("")});
  if (what.uuid) watch_.emplace(*what.uuid, [this](const auto& seen) { tell_processes(seen); });
}

void owner_body::slots_released(std::vector<std::uint64_t> uploads) {
  for (protocol::slots_copied& some : protocol::split_to_fit(std::move(uploads)))
    link_->send(std::move(some));
}

void owner_body::progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
  uploaded_.uploads += uploads;
  uploaded_.bytes += bytes;
  uploaded_.pinned = pinned;
}

void owner_body::attached(const attached_partition& what) {
  link_->send(protocol::partition_attached{what.partition, what.bytes, what.pinned,
                                           static_cast<std::uint64_t>(what.took.count())});
}

void owner_body::communicator_changed(const group::communicator_state& state) {
  if (finished_) return;  // other ranks no longer need this one, and may still be finishing
  link_->send(
      protocol::communicator_changed{state.number, static_cast<std::uint32_t>(state.at), state.cause, {}});
}

void owner_body::communicator_drawn(std::uint64_t number, const std::string& id) {
  link_->send(protocol::communicator_changed{number, 0, {}, id});
}

// ---- batches (run()'s thread) ------------------------------------------------------------------------------

void owner_body::run() {
  if (planned_.is_known.get_future().get()) {
    work();
    // The work is complete: a hang from here on must not count as a failure.
    if (deps_.outlived) deps_.host->ends(exit_codes::finished, std::nullopt);
    let_go();
  } else {
    if (planned_.refused) die(*planned_.refused);
    if (deps_.outlived) let_go();
  }
  deps_.host->ends(exit_codes::finished, std::nullopt);
}

void owner_body::work() {
  auto page = arena::flight_writer::map(deps_.flights, order_.flight_page);
  if (page) flight_.emplace(std::move(*page));
  home_ = std::make_shared<batch_home>(device_, [this](std::uint32_t buffer) {
    if (consumer_->give_back(buffer)) actors::tell(owner_, buffers_released{});
  });
  if (order_.pool) {
    run_programs();
  } else {
    run_sink();
  }
}

void owner_body::let_go() {
  {
    const std::lock_guard hold(hearing_);
    deaf_ = true;
  }
  if (home_) home_->close();
  if (owner_) {
    if (deps_.outlived) end_communicator();
    actors::tell(owner_, close_device{});
    owner_ = gpu_owner_actor();
  }
  deps_.system->await_all_actors_done();
}

/// On threads, the communicator must be ended explicitly; a process would end it by exiting. If this takes
/// too long, check_deadlines() reports it.
void owner_body::end_communicator() {
  if (!communicator_) return;
  say_end();
  communicator_->wait_until_gone(2 * config_.group.abort_timeout);
}

void owner_body::run_programs() {
  owner_jobs::deps deps{consumer_.get(), link_.get(), flight_ ? &*flight_ : nullptr, {}, {}};
  deps.give_back = [this](std::uint32_t buffer) { home_->give_back(buffer); };
  deps.counts = [this] { return counts(); };
  job_programs programs(device_, config_.jobs.programs);
  if (auto ok = owner_jobs(std::move(deps), programs).run(); !ok) die(ok.error());
}

void owner_body::run_sink() {
  owner_batches::deps deps;
  deps.consumer = consumer_.get();
  deps.link = link_.get();
  deps.flight = flight_ ? &*flight_ : nullptr;
  deps.times = times_.get();
  deps.plan = plan_;
  deps.home = home_;
  deps.device = device_;
  deps.communicator = communicator_;
  deps.order = &order_;
  deps.settings = &config_;
  deps.counts = [this] { return counts(); };
  deps.marks = &marks_;
  const auto ok = owner_batches(std::move(deps)).run();
  finished_ = ok && marks_.whole;
  if (ok) return;
  if (!communicator_ || ok.error().code != errc::group_failed) return die(ok.error());
  log::info("group", "{}: going back to the last step that all ranks have completed", ok.error().message);
  deps_.host->ends(exit_codes::temporary, std::nullopt);
}

}  // namespace penstock::gpu_owner
