#include "actors/jobs/pool_host.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/schedule/partition_book.hpp"

namespace penstock::jobs {
namespace {

struct host_state {
  host_state() = default;
  ~host_state() = default;
  host_state(const host_state&) = delete;
  host_state& operator=(const host_state&) = delete;

  pool_host_deps deps;
  meet_pool others;
  schedule::partition_book book{work_kind::jobs};
};

using self_pointer = actors::self<pool_host_actor, host_state>;

/// Carries out the decisions of the book.
struct partition_orders {
  self_pointer self;

  result<void> operator()(const schedule::adopt_served& first) const {
    self->send(self->state.others.scheduler, functions_known{std::get<schedule::served_functions>(first.what).names});
    return {};
  }
  result<void> operator()(const schedule::prepare_partition& order) const {
    host_state& s = self->state;
    arena::arena& memory = *s.deps.memory;
    if (auto ok = memory.reserve(order.partition); !ok) return ok;
    auto mapped = arena::map_partition(memory.fd(), memory.shape(), order.partition);
    if (!mapped) return tl::unexpected(std::move(mapped.error()));
    auto shared = std::make_shared<mapping>(std::move(*mapped));
    if (s.others.owner) self->send(s.others.owner, gpu_owner::attach_partition{order.partition, shared, memory.shape()});
    self->send(s.others.scheduler, partition_mapped{order.partition, std::move(shared)});
    return {};
  }
  result<void> operator()(const schedule::give_slots& order) const {
    const pool_host_deps& deps = self->state.deps;
    const arena::geometry& shape = deps.memory->shape();
    self->send(self->state.others.supervisor,
               supervisor::partition_prepared{order.who, protocol::assign_slots{shape.slot_bytes, shape.slots, shape.partitions,
                                                                                order.who.worker, deps.rows_max, deps.elsewhere_max}});
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

void welcome(self_pointer self, worker_ref who, schedule::served said) {
  schedule::welcome(self->state.book, who, std::move(said), partition_orders{self});
}

pool_host_actor::behavior_type behave(self_pointer self, pool_host_deps deps) {
  self->state.deps = std::move(deps);
  return {
      [self](const meet_pool& all) { self->state.others = all; },
      [self](const session::worker_serves& news) { welcome(self, news.who, schedule::served_functions{news.functions}); },
      [self](const session::worker_described& news) { welcome(self, news.who, schedule::served_dataset{}); },
      [self](const session::leave&) {
        self->state.others = {};
        self->quit();
      },
  };
}

}  // namespace

pool_host_actor spawn_pool_host(actors::actor_system& system, pool_host_deps deps) {
  return actors::spawn_on_its_own_thread(system, behave, std::move(deps));
}

}  // namespace penstock::jobs
