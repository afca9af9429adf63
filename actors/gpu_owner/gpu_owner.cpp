#include "actors/gpu_owner/gpu_owner.hpp"

#include "actors/caf/caf.hpp"
#include "actors/gpu_owner/attached_partitions.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/units.hpp"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>

namespace penstock::gpu_owner {
namespace {

// How many times to check for progress within the flight deadline.
constexpr int checks_a_deadline = 30;

enum class owner_stage : std::uint8_t { closed, open, ready, failed };

struct owner_state {
  struct flight {
    upload_order order;
    std::uint32_t buffer = 0;
    std::vector<std::byte> records;
    device::batch_extents extents;
  };

  owner_deps deps;
  owner_stage stage = owner_stage::closed;
  std::shared_ptr<const device::transfer_plan> plan;
  attached_partitions partitions;
  std::vector<std::uint32_t> free_buffers;
  std::vector<std::optional<stream_position>> lent;  // indexed by buffer: the batch in it that the consumer holds
  std::deque<upload_order> waiting;                  // waiting for a free buffer
  std::deque<flight> in_flight;                      // the device finishes them in this order
  std::vector<device::upload_job> burst;             // to submit together
  patient_deadline progress{nanoseconds(0), nanoseconds(0)};  // the deadline of the oldest upload in flight
  bool look_due = false;
  bool communicator_look_due = false;
  bool pinned = true;
  std::uint32_t buffers_to_allocate = 0;  // how many buffers to allocate with the next upload
};

/// All messages that the actor handles, including those from its device and to itself.
using working_actor = working::actor;
using self_pointer = actors::self<working_actor, owner_state>;

void stamp(const owner_state& s, stream_position position, batch_stage stage, steady_time now) {
  if (s.deps.times) s.deps.times->note(position, stage, now);
}

/// Takes back the buffers that the consumer has released.
void take_returned(owner_state& s) {
  const std::size_t before = s.free_buffers.size();
  s.deps.consumer->take_returned(s.free_buffers);
  const steady_time now = std::chrono::steady_clock::now();
  for (std::size_t i = before; i < s.free_buffers.size(); ++i) {
    if (const auto batch = std::exchange(s.lent[s.free_buffers[i]], std::nullopt))
      stamp(s, *batch, batch_stage::released, now);
  }
}

void fail(owner_state& s, const failure& why) {
  if (s.stage == owner_stage::failed) return;
  s.stage = owner_stage::failed;
  s.waiting.clear();
  s.deps.listener->failed(why);
}

/// Records never go to the device; copy them while the slot is still ours.
std::vector<std::byte> copy_records(const device::transfer_plan& plan, std::span<const std::byte> slot,
                                    std::size_t rows) {
  std::vector<std::byte> records;
  for (const tensor_place& place : plan.slot.tensors) {
    if (place.spec.role != tensor_role::record) continue;
    const auto bytes = slot.subspan(place.offset, place.row_bytes * rows);
    records.insert(records.end(), bytes.begin(), bytes.end());
  }
  return records;
}

/// While uploads are in flight, poll the device from time to time, whether it notifies us or not.
void look_later(self_pointer self) {
  owner_state& s = self->state;
  if (s.in_flight.empty() || std::exchange(s.look_due, true)) return;
  self->delayed_send(working_actor(self), s.deps.flight_deadline / checks_a_deadline, look_at_device{});
}

result<void> allocate_ring(owner_state& s) {
  const stage_range range("allocate buffers");
  auto ok = s.deps.device->allocate(*s.plan, s.buffers_to_allocate);
  if (!ok) return ok;
  for (std::uint32_t i = s.buffers_to_allocate; i-- > 0;) s.free_buffers.push_back(i);
  s.lent.assign(s.buffers_to_allocate, std::nullopt);
  s.buffers_to_allocate = 0;
  return ok;
}

/// Allocates the ring, and returns whether that succeeded. If the device lacks the memory, refuses the oldest
/// upload.
bool allocate_ring_when_needed(owner_state& s) {
  auto ok = allocate_ring(s);
  if (ok) return true;
  if (ok.error().code != errc::device_out_of_memory) {
    fail(s, ok.error());
    return false;
  }
  upload_order order = std::move(s.waiting.front());
  s.waiting.pop_front();
  s.deps.listener->slots_released({order.upload});
  ready_batch refused;
  refused.upload = order.upload;
  refused.position = order.position;
  refused.job = std::move(order.job);
  refused.refused = std::move(ok.error());
  s.deps.consumer->put({std::move(refused)});
  return false;
}

void submit_waiting(self_pointer self) {
  owner_state& s = self->state;
  while (s.stage == owner_stage::ready && s.buffers_to_allocate > 0 && !s.waiting.empty()) {
    if (allocate_ring_when_needed(s)) break;
  }
  if (s.stage != owner_stage::ready || s.waiting.empty() || s.free_buffers.empty()) return;
  const steady_time now = std::chrono::steady_clock::now();
  if (s.in_flight.empty()) s.progress.restart(now);
  s.burst.clear();
  while (!s.waiting.empty() && !s.free_buffers.empty()) {
    owner_state::flight& next = s.in_flight.emplace_back();
    upload_order& order = next.order;
    order = std::move(s.waiting.front());
    s.waiting.pop_front();
    const auto slot = s.partitions.find(order, s.plan->slot.rows_max);
    if (!slot) return fail(s, slot.error());
    next.buffer = s.free_buffers.back();
    s.free_buffers.pop_back();
    const auto rows = static_cast<std::uint32_t>(order.samples.size());
    next.extents = order.job ? device::batch_extents{static_cast<std::uint32_t>(order.job->bytes)}
                             : s.plan->extents_of(slot->bytes, rows);
    next.records = copy_records(*s.plan, slot->bytes, rows);
    s.burst.push_back({order.upload, next.buffer, order.partition, slot->offset, rows, next.extents});
    stamp(s, order.position, batch_stage::submitted, now);
  }
  const stage_range range("upload");
  if (auto ok = s.deps.device->submit(s.burst); !ok) return fail(s, ok.error());
  look_later(self);
}

void harvest(owner_state& s) {
  if (s.stage != owner_stage::ready || s.in_flight.empty()) return;
  auto news = s.deps.device->poll();
  if (!news) return fail(s, news.error());
  if (news->empty()) return;
  const steady_time now = std::chrono::steady_clock::now();
  s.progress.restart(now);
  // Slots first: workers are waiting for them.
  std::vector<std::uint64_t> released;
  released.reserve(news->size());
  for (const device::progress& p : *news) {
    if (p.reached != device::stage::copied) continue;
    released.push_back(p.upload);
    const auto copied = std::ranges::lower_bound(s.in_flight, p.upload, {},
                                                 [](const owner_state::flight& f) { return f.order.upload; });
    if (copied != s.in_flight.end() && copied->order.upload == p.upload)
      stamp(s, copied->order.position, batch_stage::copied, p.converts_since.value_or(now));
  }
  if (!released.empty()) s.deps.listener->slots_released(std::move(released));
  std::vector<ready_batch> finished;
  finished.reserve(news->size());
  std::uint64_t bytes = 0;
  for (const device::progress& p : *news) {
    if (p.reached != device::stage::ready) continue;
    PENSTOCK_CHECK(!s.in_flight.empty() && s.in_flight.front().order.upload == p.upload,
                   "upload {} is ready before an earlier one", p.upload);
    owner_state::flight& done = s.in_flight.front();
    upload_order& order = done.order;
    bytes += s.plan->payload_bytes(static_cast<std::uint32_t>(order.samples.size()), done.extents);
    stamp(s, order.position, batch_stage::ready, now);
    s.lent[done.buffer] = order.position;
    finished.push_back({order.upload, order.seek_number, order.position, order.epoch, order.sequence,
                        done.buffer, std::move(order.samples), std::move(done.records),
                        std::move(done.extents), std::move(order.job)});
    s.in_flight.pop_front();
  }
  if (finished.empty()) return;
  const std::size_t count = finished.size();
  // Count the batches before the consumer can see them, so that a consumer that has seen all batches finds
  // complete counts.
  s.deps.listener->progressed(count, bytes, s.pinned);
  const stage_range range("deliver");
  s.deps.consumer->put(std::move(finished));
}

std::string name_of(const upload_order& upload) {
  if (upload.job) return fmt::format("the result of job {}", upload.position);
  return fmt::format("batch {} of epoch {}", upload.sequence, upload.epoch);
}

/// Collects what is finished without a notification from the device, and checks whether there has been no
/// progress for too long. Time during which this thread did not run (the process was stopped, the machine slept)
/// proves nothing about the device.
void look(self_pointer self) {
  owner_state& s = self->state;
  s.look_due = false;
  harvest(s);
  submit_waiting(self);
  if (s.stage != owner_stage::ready || s.in_flight.empty()) return;
  const steady_time now = std::chrono::steady_clock::now();
  if (s.deps.device->waits_for_consumer()) s.progress.restart(now);
  if (s.progress.is_over(now)) {
    const upload_order& oldest = s.in_flight.front().order;
    return fail(s, {errc::device_poisoned,
                    fmt::format("the copy or the conversion of {} has not finished for {}: "
                                "the device hangs, and only a new process can use it again",
                                name_of(oldest), duration_for_people(s.deps.flight_deadline)),
                    0});
  }
  look_later(self);
}

void look_after_communicator(self_pointer self) {
  owner_state& s = self->state;
  const steady_time now = std::chrono::steady_clock::now();
  const steady_time again = s.deps.communicator->look(now);
  if (again == never || std::exchange(s.communicator_look_due, true)) return;
  self->delayed_send(working_actor(self), again - now, look_at_communicator{});
}

void open(owner_state& s) {
  const stage_range range("open device");
  auto opened = s.deps.device->open();
  if (!opened) return fail(s, opened.error());
  s.stage = owner_stage::open;
  s.deps.listener->opened(*opened);
}

void prepare(self_pointer self, const prepare_device& order) {
  owner_state& s = self->state;
  if (s.stage != owner_stage::open) return;
  s.plan = order.plan;
  s.buffers_to_allocate = order.buffers;
  if (!order.when_needed) {
    if (auto ok = allocate_ring(s); !ok) return fail(s, ok.error());
  }
  s.stage = owner_stage::ready;
  submit_waiting(self);
}

void attach(owner_state& s, const attach_partition& order) {
  if (s.stage == owner_stage::failed || s.stage == owner_stage::closed) return;
  PENSTOCK_CHECK(!s.partitions.contains(order.partition), "partition {} is attached already",
                 order.partition);
  const stage_range range("register partition");
  const steady_time begin = std::chrono::steady_clock::now();
  auto pinned = s.deps.device->attach(order.partition, order.memory->bytes());
  if (!pinned) return fail(s, pinned.error());
  s.deps.listener->attached(
      {order.partition, order.memory->bytes().size(), *pinned, std::chrono::steady_clock::now() - begin});
  s.pinned = s.pinned && *pinned;
  s.partitions.add(order);
}

void close(owner_state& s) {
  if (s.stage != owner_stage::failed) s.stage = owner_stage::closed;
  s.deps.device->close();
  s.partitions.clear();
}

working_actor::behavior_type behave(self_pointer self, owner_deps deps) {
  ::pthread_setname_np(::pthread_self(), owner_thread_name);
  owner_state& s = self->state;
  s.deps = std::move(deps);
  s.progress = {s.deps.flight_deadline, s.deps.flight_deadline / checks_a_deadline};
  s.deps.device->on_progress([to = actors::weak_handle(working_actor(self))] {
    if (const auto owner = to.lock()) actors::tell(owner, device_moved{});
  });
  return {
      // CAF tries these in order, so frequent messages come first.
      [self](upload_batches& more) {
        owner_state& state = self->state;
        if (state.stage == owner_stage::failed) return;
        state.waiting.insert(state.waiting.end(), std::make_move_iterator(more.orders.begin()),
                             std::make_move_iterator(more.orders.end()));
        harvest(state);
        submit_waiting(self);
      },
      [self](const device_moved&) {
        harvest(self->state);
        submit_waiting(self);
      },
      [self](const buffers_released&) {
        owner_state& state = self->state;
        take_returned(state);
        harvest(state);
        submit_waiting(self);
      },
      [&s](const open_device&) { open(s); },
      [self](const prepare_device& order) { prepare(self, order); },
      [&s](const attach_partition& order) { attach(s, order); },
      [self](const look_at_device&) { look(self); },
      [self](const communicate& order) {
        owner_state& state = self->state;
        const bool usable = state.stage == owner_stage::open || state.stage == owner_stage::ready;
        if (!state.deps.communicator || (!usable && order.what != communicate::act::end)) return;
        state.deps.communicator->follow(order, state.deps.device->on_host());
        look_after_communicator(self);
      },
      [self](const look_at_communicator&) {
        self->state.communicator_look_due = false;
        look_after_communicator(self);
      },
      [self](const close_device&) {
        close(self->state);
        self->quit();
      },
  };
}

}  // namespace

gpu_owner_actor spawn_gpu_owner(actors::actor_system& system, owner_deps deps) {
  return actors::spawn_on_its_own_thread(system, behave, std::move(deps));
}

}  // namespace penstock::gpu_owner
