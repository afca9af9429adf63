#include "actors/session/session_actor.hpp"

#include "actors/caf/caf.hpp"
#include "actors/protocol/tensors.hpp"
#include "actors/session/owner_inside.hpp"
#include "actors/session/quarantine_keeper.hpp"
#include "runtime/arena/memory_budget.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/worker_slots.hpp"

#include <algorithm>
#include <cmath>
#include <set>

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
  std::optional<dataset_description> dataset;  // as described by the first worker
  arena::geometry shape;
  std::uint32_t rows_max = 0;        // per slot
  std::set<std::uint32_t> prepared;  // partitions that are already reserved and attached
  std::string own_fingerprint;       // that the author of the dataset chose
  bool built = false;
  bool failed = false;
};

using self_pointer = actors::self<session_actor, session_state>;

result<dataset_description> checked(const config& settings, const protocol::dataset_described& from) {
  auto tensors = protocol::from_wire(from.tensors);
  if (!tensors) return tl::unexpected(std::move(tensors.error()));
  for (const tensor_spec& t : *tensors) {
    if (t.role == tensor_role::encoded && settings.image.decoder == decoder_rule::cpu)
      return refuse(errc::dataset,
                    "tensor '{}' is encoded: only built-in datasets may leave decoding to the device",
                    t.name);
  }
  dataset_description described{from.type, from.samples, std::move(*tensors), from.fingerprint};
  if (settings.dataset.type == dataset_type::custom) described.fingerprint = fingerprint_of_custom(described);
  return described;
}

/// `own`: the string that its author chose; the other one is a hash of everything.
std::string fingerprint_in_words(const std::string& fingerprint, const std::string& own) {
  return own.empty() || own == fingerprint ? fingerprint : fmt::format("{} (its author's '{}')", fingerprint, printable(own));
}

std::string difference(const dataset_description& a, const std::string& own_of_a, const dataset_description& b, const std::string& own_of_b) {
  if (a.type != b.type) return fmt::format("type {} and {}", a.type, b.type);
  if (a.samples != b.samples) return fmt::format("{} and {} samples", a.samples, b.samples);
  if (a.tensors != b.tensors) return "different tensors";
  return fmt::format("fingerprints {} and {}", fingerprint_in_words(a.fingerprint, own_of_a), fingerprint_in_words(b.fingerprint, own_of_b));
}

std::uint64_t quarantine_max(const config& c, std::uint64_t samples) {
  // rule D6
  const auto share =
      static_cast<std::uint64_t>(std::ceil(c.quarantine.max_fraction * static_cast<double>(samples)));
  return std::min(c.quarantine.max_samples, std::max<std::uint64_t>(8, share));
}

schedule::ledger_settings ledger_settings_of(const config& c, std::uint64_t samples, bool from_store, std::uint32_t slots) {
  schedule::ledger_settings made{.max_attempts = c.quarantine.max_attempts,
                                 .quarantine_max = quarantine_max(c, samples),
                                 .on_bad_sample = c.loader.on_bad_sample,
                                 .window = c.scheduler.order == order_rule::relaxed ? c.scheduler.window : 0};
  if (c.loader.hedge) made.spare_slots = 1;
  if (from_store) {
    made.leases_ahead = std::max(made.leases_ahead, slots);
    made.slow_batch = nanoseconds::max();
  }
  return made;
}

result<void> check_memory_for(const config& c, const arena::geometry& shape, std::uint32_t workers) {
  return arena::check_memory(memory_need_of(c, shape, workers), arena::memory_limits());
}

/// The state's quarantined samples that the quarantine file does not list; a state has only their numbers.
std::vector<quarantine_report> only_in_state(const schedule::stream_state& state, const std::vector<quarantine_report>& listed) {
  std::set<std::uint64_t> known;
  for (const quarantine_report& one : listed) known.insert(one.sample);
  std::vector<quarantine_report> only;
  for (const std::uint64_t sample : state.quarantined_samples) {
    if (!known.contains(sample)) only.push_back({sample, std::nullopt, 0, {}, true, false});
  }
  return only;
}

/// Computes everything that depends on the dataset's description.
result<void> build(session_state& s, self_pointer self) {
  const config& c = s.deps.settings;
  const auto& resumed = s.deps.request.resumed;
  // Only a custom dataset is unknown until its first worker describes it.
  auto sampling =
      s.deps.order ? result<penstock::sampling>(*s.deps.order) : read_sampling(c, *s.dataset, -1);
  if (!sampling) return tl::unexpected(std::move(sampling.error()));
  if (!s.deps.order)
    for (const std::string& notice : sampling->notices) log::warn("dataset", "{}", notice);
  auto order = plan_of(c, *s.dataset, *sampling, resumed ? &*resumed : nullptr);
  if (!order) return tl::unexpected(std::move(order.error()));
  s.rows_max = rows_max_of(*order);
  auto layout = lay_out(s.dataset->tensors, s.rows_max);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  auto range = range_of(c, s.deps.request, *order);
  if (!range) return tl::unexpected(std::move(range.error()));
  auto shape = geometry_of(c, *layout, s.deps.partitions);
  if (!shape) return tl::unexpected(std::move(shape.error()));
  auto transfer = device::plan_transfer(*layout, {c.gpu.layout, c.gpu.dtype, c.gpu.mean, c.gpu.std});
  if (!transfer) return tl::unexpected(std::move(transfer.error()));
  const std::uint32_t workers = s.deps.workers_wanted();
  if (auto ok = check_memory_for(c, *shape, workers); !ok) return ok;
  if (auto ok = s.deps.memory->size_and_seal(*shape); !ok) return ok;
  s.shape = *shape;
  auto known = s.quarantine->open(s.dataset->fingerprint);
  if (!known) return tl::unexpected(std::move(known.error()));
  s.deps.listener->quarantine_known(*known);
  if (resumed) s.deps.listener->quarantine_known(only_in_state(*resumed, *known));

  const std::uint32_t slots = slots_for_batches(c.loader, s.shape.slot_bytes);
  const auto shared_order = std::make_shared<const plan>(std::move(*order));
  const auto shared_transfer = std::make_shared<const device::transfer_plan>(std::move(*transfer));
  s.deps.listener->planned(shared_order, shared_transfer, *range,
                         sampling->identity.empty()
                             ? s.dataset->fingerprint
                             : fmt::format("{}, {}", s.dataset->fingerprint, sampling->identity),
                         slots);
  // Check the memory for earlier scale() requests here; later ones check it themselves.
  if (const std::uint32_t more = s.deps.workers_wanted(); more > workers) {
    if (auto ok = check_memory_for(c, *shape, more); !ok) return ok;
  }
  self->send(s.others.owner, gpu_owner::prepare_device{shared_transfer, s.shape, c.gpu.buffers});
  self->send(s.others.scheduler,
             scheduler::open_stream{
                 shared_order,
                 ledger_settings_of(c, s.dataset->samples, s.deps.from_store, slots),
                 identity_of(c, &*s.dataset, *sampling),
                 *range,
                 s.deps.request.resumed,
                 std::move(*known),
                 c.loader.max_failed_fraction,
                 s.deps.demanded});
  s.built = true;
  return {};
}

/// Reserves memory for a place's first worker. Replacements use the same memory, and the owner may still be
/// reading from it.
result<void> prepare_partition(session_state& s, self_pointer self, std::uint32_t partition) {
  if (!s.prepared.insert(partition).second) return {};
  if (auto ok = s.deps.memory->reserve(partition); !ok) return ok;
  gpu_owner::attach_partition order{partition, nullptr, s.shape};
  if (s.deps.settings.gpu.placement == placement_rule::embedded && !owner_is_inside(s.deps.settings)) {
    auto memory = arena::map_partition(s.deps.memory->fd(), s.shape, partition);
    if (!memory) return tl::unexpected(std::move(memory.error()));
    order.memory = std::make_shared<mapping>(std::move(*memory));
  }
  // Send this before the worker gets its slots: the owner must know the memory before any upload from it.
  self->send(s.others.owner, std::move(order));
  return {};
}

protocol::assign_slots slots_of(const session_state& s, std::uint32_t partition) {
  return protocol::assign_slots{.slot_bytes = s.shape.slot_bytes,
                                .slots = s.shape.slots,
                                .partitions = s.shape.partitions,
                                .partition = partition,
                                .batch_size = s.rows_max};
}

result<protocol::assign_slots> welcome(self_pointer self, const worker_described& news) {
  session_state& s = self->state;
  auto described = checked(s.deps.settings, news.dataset);
  if (!described) return tl::unexpected(std::move(described.error()));
  const dataset_description* const known = s.dataset           ? &*s.dataset
                                           : s.deps.expected ? &*s.deps.expected
                                                               : nullptr;
  if (known != nullptr && *described != *known) {
    return refuse(errc::protocol, "worker {} sees a different dataset than the session: {}", news.who.worker,
                  difference(*known, s.own_fingerprint, *described, news.dataset.fingerprint));
  }
  if (!s.built) {
    s.own_fingerprint = news.dataset.fingerprint;
    s.dataset = std::move(*described);
    if (auto ok = build(s, self); !ok) return tl::unexpected(std::move(ok.error()));
  }
  if (auto ok = prepare_partition(s, self, news.who.worker); !ok)
    return tl::unexpected(std::move(ok.error()));
  return slots_of(s, news.who.worker);
}

session_actor::behavior_type behave(self_pointer self, session_deps deps) {
  self->state.deps = std::move(deps);
  self->state.quarantine = std::make_unique<quarantine_keeper>(self->state.deps.settings.quarantine.file,
                                                               self->state.deps.settings.name);
  return {
      [self](const protocol::meet& all) { self->state.others = all.others; },
      [self](const device_ready&) { self->send(self->state.others.supervisor, supervisor::open_pool{}); },
      [self](const worker_described& news) {
        session_state& s = self->state;
        supervisor::partition_prepared answer{news.who, std::nullopt};
        if (!s.failed) {
          auto slots = welcome(self, news);
          if (slots) {
            answer.slots = std::move(*slots);
          } else {
            s.failed = true;
            s.deps.listener->gave_up(slots.error());
          }
        }
        self->send(s.others.supervisor, std::move(answer));
      },
      [self](const worker_serves& news) {
        session_state& s = self->state;
        if (!std::exchange(s.failed, true)) {
          s.deps.listener->gave_up(
              {errc::worker_program,
               "the worker program ([loader] command) serves functions of a pool (penstock::job_main), not a "
               "dataset (penstock::worker_main)",
               0});
        }
        self->send(s.others.supervisor, supervisor::partition_prepared{news.who, std::nullopt});
      },
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
