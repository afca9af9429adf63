#include "actors/jobs/pool_host.hpp"

#include "actors/caf/caf.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace penstock::jobs {
namespace {

struct host_state {
  host_state() = default;
  ~host_state() = default;
  host_state(const host_state&) = delete;
  host_state& operator=(const host_state&) = delete;

  pool_host_deps deps;
  meet_pool others;
  std::optional<std::vector<std::string>> functions;  // as reported by the first worker
  std::set<std::uint32_t> prepared;
  bool failed = false;
};

using self_pointer = actors::self<pool_host_actor, host_state>;

std::string words(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? std::string("none") : all;
}

result<void> compare(self_pointer self, worker_ref who, std::vector<std::string> names) {
  host_state& s = self->state;
  std::ranges::sort(names);
  if (!s.functions) {
    s.functions = names;
    self->send(s.others.scheduler, functions_known{std::move(names)});
    return {};
  }
  if (*s.functions == names) return {};
  return refuse(errc::worker_program,
                "worker {} serves different functions than the first worker: {} instead of {}; was its program "
                "replaced in the meantime?",
                who.worker, words(names), words(*s.functions));
}

/// Prepares a place for its first worker; replacements use the same memory.
result<void> prepare(self_pointer self, std::uint32_t place) {
  host_state& s = self->state;
  if (s.prepared.contains(place)) return {};
  arena::arena& memory = *s.deps.memory;
  if (auto ok = memory.reserve(place); !ok) return ok;
  auto mapped = arena::map_partition(memory.fd(), memory.shape(), place);
  if (!mapped) return tl::unexpected(std::move(mapped.error()));
  s.prepared.insert(place);
  auto shared = std::make_shared<mapping>(std::move(*mapped));
  if (s.others.owner) self->send(s.others.owner, gpu_owner::attach_partition{place, shared, memory.shape()});
  self->send(s.others.scheduler, partition_mapped{place, std::move(shared)});
  return {};
}

void welcome(self_pointer self, const session::worker_serves& news) {
  host_state& s = self->state;
  supervisor::partition_prepared answer{news.who, std::nullopt};
  if (!s.failed) {
    auto ok = compare(self, news.who, news.functions);
    if (ok) ok = prepare(self, news.who.worker);
    if (ok) {
      const arena::geometry& shape = s.deps.memory->shape();
      answer.slots = protocol::assign_slots{shape.slot_bytes, shape.slots,       shape.partitions,
                                            news.who.worker,  s.deps.rows_max, s.deps.elsewhere_max};
    } else {
      s.failed = true;
      s.deps.listener->gave_up(ok.error());
    }
  }
  self->send(s.others.supervisor, std::move(answer));
}

pool_host_actor::behavior_type behave(self_pointer self, pool_host_deps deps) {
  self->state.deps = std::move(deps);
  return {
      [self](const meet_pool& all) { self->state.others = all; },
      [self](const session::worker_serves& news) { welcome(self, news); },
      [self](const session::worker_described& news) {
        self->state.failed = true;
        self->state.deps.listener->gave_up({errc::worker_program,
                                          "the worker program loads a dataset (penstock::worker_main); a "
                                          "pool needs one that serves functions "
                                          "(penstock::job_main): see [loader] command",
                                          0});
        self->send(self->state.others.supervisor, supervisor::partition_prepared{news.who, std::nullopt});
      },
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
