#include "actors/session/session_actor.hpp"

#include "actors/caf/caf.hpp"
#include "actors/session/quarantine_keeper.hpp"
#include "actors/session/stream_setup.hpp"
#include "runtime/arena/memory_budget.hpp"
#include "runtime/base/log.hpp"

namespace penstock::session {
namespace {

struct session_state {
  session_state() = default;
  ~session_state() = default;
  session_state(const session_state&) = delete;
  session_state& operator=(const session_state&) = delete;

  session_deps deps;
  std::unique_ptr<quarantine_keeper> quarantine;
  protocol::peers others;
  std::optional<schedule::partition_book> book;
  std::optional<arena::reservation> reservation;
  std::uint32_t rows_max = 0;  // per slot
};

using self_pointer = actors::self<session_actor, session_state>;

/// Checks the memory for all workers that are currently wanted.
result<void> check_memory_for(const session_deps& deps, const arena::geometry& shape) {
  return arena::check_memory(memory_need_of(deps.settings, shape, deps.workers_wanted()), arena::memory_limits());
}

/// Only a custom dataset is unknown until its first worker describes it.
result<sampling> sampling_of(const session_deps& deps, const dataset_description& dataset) {
  if (deps.order) return *deps.order;
  auto order = read_sampling(deps.settings, dataset, -1);
  if (order)
    for (const std::string& notice : order->notices) log::warn("dataset", "{}", notice);
  return order;
}

/// Allocates the memory of these slots. The owner gets a partition as a whole, because the device registers it as one
/// range; the scheduler hears of it afterwards, so no upload overtakes it.
result<void> reserve(self_pointer self, const arena::slot_range& part) {
  session_state& s = self->state;
  arena::arena& memory = *s.deps.memory;
  if (auto ok = memory.reserve(part); !ok) return ok;
  if (!s.reservation->is_last(part)) {
    if (part.first == 0) self->send(s.others.scheduler, scheduler::place_prepared{part.partition, part.end});
    self->send(session_actor(self), reserve_more{});
    return {};
  }
  gpu_owner::attach_partition attached{part.partition, nullptr, memory.shape()};
  if (!s.deps.owner_maps_partitions) {
    auto mapped = arena::map_partition(memory.fd(), memory.shape(), part.partition);
    if (!mapped) return tl::unexpected(std::move(mapped.error()));
    attached.memory = std::make_shared<mapping>(std::move(*mapped));
  }
  self->send(s.others.owner, std::move(attached));
  if (part.first > 0) self->send(s.others.scheduler, scheduler::place_prepared{part.partition, std::nullopt});
  return {};
}

/// Other messages come first: a worker that has just described itself need not wait for the slots of others.
void reserve_next(self_pointer self) {
  const auto part = self->state.reservation->next();
  if (!part) return;
  if (auto ok = reserve(self, *part); !ok) self->state.deps.listener->gave_up(ok.error());
}

/// Carries out the decisions of the book.
struct partition_orders {
  self_pointer self;

  result<void> operator()(const schedule::adopt_served& first) const {
    session_state& s = self->state;
    const session_deps& deps = s.deps;
    const dataset_description& dataset = std::get<schedule::served_dataset>(first.what).dataset;
    const auto& resumed = deps.request.resumed;
    auto order = sampling_of(deps, dataset);
    if (!order) return tl::unexpected(std::move(order.error()));
    auto stream = set_up_stream(deps.settings, dataset, *order, deps.request, deps.partitions, deps.from_store);
    if (!stream) return tl::unexpected(std::move(stream.error()));
    const auto workers = deps.workers_wanted();
    if (auto ok = check_memory_for(deps, stream->shape); !ok) return ok;
    if (auto ok = deps.memory->size_and_seal(stream->shape); !ok) return ok;
    auto known = s.quarantine->open(dataset.fingerprint);
    if (!known) return tl::unexpected(std::move(known.error()));
    deps.listener->quarantine_known(*known);
    if (resumed) deps.listener->quarantine_known(only_in_state(*resumed, *known));
    deps.listener->planned(dataset.samples, stream->order, stream->transfer, stream->range, stream->fingerprint, stream->slots);
    // From here on scale() checks the memory itself; this check is for what it has asked for until now.
    if (deps.workers_wanted() > workers) {
      if (auto ok = check_memory_for(deps, stream->shape); !ok) return ok;
    }
    s.rows_max = stream->rows_max;
    s.reservation.emplace(stream->shape);
    self->send(s.others.owner, gpu_owner::prepare_device{stream->transfer, stream->shape, deps.settings.gpu.buffers});
    self->send(s.others.scheduler,
               scheduler::open_stream{stream->order, stream->rules, stream->identity, stream->range, resumed, std::move(*known),
                                      deps.settings.loader.max_failed_fraction, deps.demanded});
    return {};
  }
  result<void> operator()(const schedule::prepare_partition& order) const {
    return reserve(self, self->state.reservation->begin(order.partition));
  }
  result<void> operator()(const schedule::give_slots& order) const {
    const arena::geometry& shape = self->state.deps.memory->shape();
    self->send(self->state.others.supervisor,
               supervisor::partition_prepared{order.who, protocol::assign_slots{.slot_bytes = shape.slot_bytes,
                                                                                .slots = shape.slots,
                                                                                .partitions = shape.partitions,
                                                                                .partition = order.who.worker,
                                                                                .batch_size = self->state.rows_max}});
    return {};
  }
  result<void> operator()(const schedule::refuse_slots& order) const {
    self->send(self->state.others.supervisor, supervisor::partition_prepared{order.who, std::nullopt});
    return {};
  }
  result<void> operator()(const schedule::fail_run& order) const {
    self->state.deps.listener->gave_up(order.why);
    return {};
  }
};

void welcome(self_pointer self, worker_ref who, result<schedule::served> said) {
  schedule::welcome(*self->state.book, who, std::move(said), partition_orders{self});
}

session_actor::behavior_type behave(self_pointer self, session_deps deps) {
  session_state& s = self->state;
  s.book.emplace(work_kind::samples, deps.expected);
  s.quarantine = std::make_unique<quarantine_keeper>(deps.settings.quarantine.file, deps.settings.name);
  s.deps = std::move(deps);
  return {
      [self](const protocol::meet& all) { self->state.others = all.others; },
      [self](const device_ready&) { self->send(self->state.others.supervisor, supervisor::open_pool{}); },
      [self](const reserve_more&) { reserve_next(self); },
      [self](const worker_described& news) { welcome(self, news.who, served_by(self->state.deps.settings, news.dataset)); },
      [self](const worker_serves& news) { welcome(self, news.who, schedule::served_functions{news.functions}); },
      [self](const sample_quarantined& news) { self->state.quarantine->keep(news.lost); },
      [self](const quarantine_released& order) { self->state.quarantine->release(order.sample); },
      [self](const leave&) {
        self->state.others = {};
        self->state.quarantine->close();
        self->quit();
      },
  };
}

}  // namespace

session_actor spawn_session(actors::actor_system& system, session_deps deps) {
  return actors::spawn_on_its_own_thread(system, behave, std::move(deps));
}

}  // namespace penstock::session
