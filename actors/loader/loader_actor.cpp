#include "actors/loader/loader_actor.hpp"

#include "actors/caf/caf.hpp"
#include "actors/child/child.hpp"
#include "actors/loader/lease_runner.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/fit.hpp"
#include "actors/protocol/tensors.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/thrown.hpp"
#include "runtime/process/crash_notes.hpp"

#include <unistd.h>

#include <optional>
#include <thread>

namespace penstock::loader {
namespace {

struct loader_state {
  loader_state() = default;
  ~loader_state() {
    if (deps.expected) deps.expected->set_dataset(nullptr);
  }
  loader_state(const loader_state&) = delete;
  loader_state& operator=(const loader_state&) = delete;

  loader_deps deps;
  config settings;
  worker_ref me;
  std::unique_ptr<Dataset> dataset;
  dataset_description description;
  batch_layout layout;
  std::optional<arena::slots_view> slots;
  std::optional<arena::flight_writer> flight;
  std::optional<child::link_watch> link;  // only for a custom dataset
  std::optional<lease_runner> runner;
  bool over = false;
};

using self_pointer = actors::self<loader_actor, loader_state>;

void end(self_pointer self, int exit_code) {
  if (std::exchange(self->state.over, true)) return;
  self->state.deps.ended(exit_code);
  self->quit();
}

void give_up(self_pointer self, int exit_code, const failure& why) {
  self->state.deps.link->send(
      protocol::worker_gives_up{exit_code, static_cast<std::uint8_t>(why.code), why.message});
  end(self, exit_code);
}

/// Runs user code that prepares the dataset. An exception is a failure of the dataset, not of the worker.
template <class Step>
bool prepare(self_pointer self, arena::phase at, Step step) {
  std::string reason;
  self->state.flight->publish({at, 0, 0, 0}, "");
  try {
    step();
    if (self->state.link && self->state.link->lost()) self->state.link->abort_after(arena::preparation_in_words(at));
    self->state.flight->rest();
    return true;
  } catch (...) {
    reason = thrown_text();
  }
  give_up(self, exit_codes::configuration, {errc::dataset, fmt::format("{}: {}", arena::preparation_in_words(at), reason), 0});
  return false;
}

void open(self_pointer self, const protocol::open_dataset& order) {
  process::this_thread_works();
  loader_state& s = self->state;
  if (order.version != protocol::version) {
    give_up(self, exit_codes::protocol,
            {errc::protocol,
             fmt::format("the session speaks protocol {}, but this worker speaks {}", order.version,
                         protocol::version),
             0});
    return;
  }
  if (order.pool) {
    give_up(self, exit_codes::configuration,
            {errc::worker_program,
             "the worker program ([loader] command) loads a dataset (penstock::worker_main); a pool needs "
             "one that "
             "serves functions (penstock::job_main)",
             0});
    return;
  }
  auto settings = protocol::config_from_bytes(order.config);
  if (!settings) return give_up(self, exit_codes::protocol, settings.error());
  s.settings = std::move(*settings);
  s.me = order.you;
  auto flight = arena::flight_writer::map(protocol::child_fd::flight, s.me.worker);
  if (!flight) return give_up(self, exit_codes::protocol, flight.error());
  s.flight.emplace(std::move(*flight));
  s.flight->this_thread_works(process::working_thread());
  if (s.settings.dataset.type == dataset_type::custom)
    s.link.emplace(s.deps.link_descriptor, [link = s.deps.link] { return link->is_open(); });
  const bool opened = prepare(self, arena::phase::opening, [&] {
    s.dataset = s.deps.make_dataset(s.settings);
    if (!s.dataset) throw error({errc::dataset, "the worker program's factory returned no dataset", 0});
  });
  if (opened && prepare(self, arena::phase::describing, [&] { s.description = s.dataset->describe(); })) {
    const dataset_description& d = s.description;
    s.deps.link->send(
        protocol::dataset_described{d.type, d.samples, protocol::as_wire(d.tensors), d.fingerprint});
  }
}

void assign(self_pointer self, const protocol::assign_slots& order) {
  loader_state& s = self->state;
  if (!s.dataset)
    return give_up(self, exit_codes::protocol,
                   {errc::protocol, "slots were assigned before a dataset was opened", 0});
  auto layout = lay_out(s.description.tensors, order.batch_size);
  if (!layout) return give_up(self, exit_codes::configuration, layout.error());
  if (layout->bytes > order.slot_bytes) {
    return give_up(
        self, exit_codes::protocol,
        {errc::protocol,
         fmt::format("a batch needs {} bytes, but the slots have {}", layout->bytes, order.slot_bytes), 0});
  }
  s.layout = std::move(*layout);
  auto slots = arena::slots_view::map(protocol::child_fd::arena,
                                      {order.slot_bytes, order.slots, order.partitions}, order.partition);
  if (!slots) return give_up(self, exit_codes::protocol, slots.error());
  s.slots.emplace(std::move(*slots));
  const bool ready = prepare(self, arena::phase::setup, [&] {
    s.dataset->setup({s.me.worker, s.me.incarnation, s.settings.sampler.seed});
  });
  if (!ready) return;
  std::function<bool(const protocol::load_batch&)> dropped;
  if (s.settings.loader.hedge) dropped = [expected = s.deps.expected](const auto& lease) { return expected->is_dropped(lease); };
  s.runner.emplace(lease_context{*s.dataset, *s.slots, *s.flight, s.layout, s.description.tensors,
                                 s.settings.sampler.seed, s.me, *s.deps.stopping, std::move(dropped), s.link ? &*s.link : nullptr},
                   [](std::chrono::milliseconds pause) { std::this_thread::sleep_for(pause); });
  if (s.runner->cuda_loaded()) {
    return give_up(
        self, exit_codes::configuration,
        {errc::dataset,
         fmt::format("the worker program or Dataset::setup loaded CUDA into worker {} (pid {}); only "
                     "the GPU owner uses the GPU",
                     s.me.worker, ::getpid()),
         0});
  }
  s.deps.expected->set_dataset(s.dataset.get());
  s.deps.link->send(protocol::worker_ready{});
}

void load(self_pointer self, const protocol::load_batch& lease) {
  loader_state& s = self->state;
  if (s.over) return;
  if (!s.runner)
    return give_up(self, exit_codes::protocol,
                   {errc::protocol, "it received a lease before slots were assigned", 0});
  auto report = s.runner->run(lease);
  if (!report) return give_up(self, exit_codes::protocol, report.error());
  if (!*report) return end(self, exit_codes::finished);
  protocol::cut_to_fit(**report);
  s.deps.link->send(std::move(**report));
  if (s.runner->cuda_loaded()) end(self, exit_codes::temporary);
}

void name(self_pointer self, const protocol::name_samples& order) {
  loader_state& s = self->state;
  if (s.over) return;
  if (!s.runner)
    return give_up(self, exit_codes::protocol, {errc::protocol, "the session asked for names before it assigned slots", 0});
  protocol::samples_named said;
  for (const std::uint64_t sample : order.samples) {
    try {
      said.names.push_back(s.dataset->name_of(sample).substr(0, protocol::samples_named::name_bytes_max));
    } catch (...) {  // load() of this sample would report why
      said.names.push_back(default_sample_name(sample));
    }
  }
  s.deps.link->send(std::move(said));
}

void load_urgent(self_pointer self) {
  while (const auto lease = self->state.deps.expected->take_urgent()) load(self, *lease);
}

loader_actor::behavior_type behave(self_pointer self, loader_deps deps) {
  self->state.deps = std::move(deps);
  return {
      [=](const protocol::open_dataset& order) { open(self, order); },
      [=](const protocol::assign_slots& order) { assign(self, order); },
      [=](const protocol::load_batch& lease) {
        load_urgent(self);
        load(self, lease);
      },
      [=](const protocol::name_samples& order) { name(self, order); },
      [=](const link_lost& news) {
        if (news.reason.empty()) return end(self, exit_codes::parent_lost);
        give_up(self, exit_codes::protocol, {errc::protocol, news.reason, 0});
      },
      [=](const wake_up&) {
        if (self->state.deps.stopping->load()) return end(self, exit_codes::finished);
        load_urgent(self);
      },
  };
}

}  // namespace

loader_actor spawn_loader(actors::actor_system& system, loader_deps deps) {
  return actors::spawn(system, behave, std::move(deps));
}

}  // namespace penstock::loader
