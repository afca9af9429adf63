#include "actors/loader/loader_actor.hpp"

#include "actors/child/child.hpp"
#include "actors/loader/lease_runner.hpp"
#include "actors/loader/loader_book.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/fit.hpp"
#include "actors/protocol/tensors.hpp"
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
  loader_book book;
  config settings;
  worker_ref me;
  std::unique_ptr<Dataset> dataset;
  dataset_description description;
  batch_layout layout;
  std::optional<arena::slots_view> slots;
  std::optional<arena::flight_writer> flight;
  std::optional<child::link_watch> link;  // only for a custom dataset
  std::optional<lease_runner> runner;
};

using self_pointer = actors::self<loader_actor, loader_state>;

/// Runs user code that prepares the dataset. An exception is a failure of the dataset, not of the worker.
template <class Step>
result<void> prepare(loader_state& s, arena::phase at, Step step) {
  s.flight->publish({at, 0, 0, 0}, "");
  try {
    step();
  } catch (...) {
    return refuse(errc::dataset, "{}", with_cause(arena::preparation_in_words(at), thrown_text()));
  }
  if (s.link && s.link->lost()) s.link->abort_after(arena::preparation_in_words(at));
  s.flight->rest();
  return {};
}

/// Carries out the steps of the book, and tells it how each ended.
struct loader_steps {
  using next_step = loader_book::next_step;

  self_pointer self;
  loader_state& s = self->state;
  loader_book& book = s.book;

  next_step operator()(const open_and_describe& step) const {
    process::this_thread_works();
    auto settings = protocol::config_from_bytes(step.order.config);
    if (!settings) return book.session_failed(settings.error());
    s.settings = std::move(*settings);
    s.me = step.order.you;
    auto flight = arena::flight_writer::map(protocol::child_fd::flight, s.me.worker);
    if (!flight) return book.session_failed(flight.error());
    s.flight.emplace(std::move(*flight));
    s.flight->this_thread_works(process::working_thread());
    if (s.settings.dataset.type == dataset_type::custom)
      s.link.emplace(s.deps.link_descriptor, [link = s.deps.link] { return link->is_open(); });
    const auto opened = prepare(s, arena::phase::opening, [&] {
      s.dataset = s.deps.make_dataset(s.settings);
      if (!s.dataset) throw error({errc::dataset, "the worker program's factory returned no dataset", 0});
    });
    if (!opened) return book.dataset_failed(opened.error());
    const auto described = prepare(s, arena::phase::describing, [&] { s.description = s.dataset->describe(); });
    if (!described) return book.dataset_failed(described.error());
    const dataset_description& d = s.description;
    s.deps.link->send(protocol::dataset_described{d.type, d.samples, protocol::as_wire(d.tensors), d.fingerprint});
    return book.described(d.tensors);
  }

  next_step operator()(const map_and_set_up& step) const {
    const protocol::assign_slots& order = step.order;
    s.layout = step.layout;
    auto slots = arena::slots_view::map(protocol::child_fd::arena, {order.slot_bytes, order.slots, order.partitions}, order.partition);
    if (!slots) return book.session_failed(slots.error());
    s.slots.emplace(std::move(*slots));
    const auto ready =
        prepare(s, arena::phase::setup, [&] { s.dataset->setup({s.me.worker, s.me.incarnation, s.settings.sampler.seed}); });
    if (!ready) return book.dataset_failed(ready.error());
    std::function<bool(const protocol::load_batch&)> dropped;
    if (s.settings.loader.hedge)
      dropped = [expected = s.deps.expected](const auto& lease) { return expected->is_dropped(lease); };
    s.runner.emplace(lease_context{*s.dataset, *s.slots, *s.flight, s.layout, s.description.tensors, s.settings.sampler.seed, s.me,
                                   *s.deps.stopping, std::move(dropped), s.link ? &*s.link : nullptr},
                     [](std::chrono::milliseconds pause) { std::this_thread::sleep_for(pause); });
    return book.set_up(s.runner->cuda_loaded(), ::getpid());
  }

  next_step operator()(const report_ready&) const {
    s.deps.expected->set_dataset(s.dataset.get());
    s.deps.link->send(protocol::worker_ready{});
    return std::nullopt;
  }

  next_step operator()(const look_for_urgent&) const { return book.urgent(s.deps.expected->take_urgent()); }

  next_step operator()(const run_lease& step) const {
    auto report = s.runner->run(step.lease);
    if (!report) return book.session_failed(report.error());
    if (!*report) return book.stopped();
    protocol::cut_to_fit(**report);
    s.deps.link->send(std::move(**report));
    return book.ran(s.runner->cuda_loaded());
  }

  next_step operator()(const tell_names& step) const {
    protocol::samples_named said;
    for (const std::uint64_t sample : step.samples) {
      try {
        said.names.push_back(s.dataset->name_of(sample).substr(0, protocol::samples_named::name_bytes_max));
      } catch (...) {  // use the default name; load() of this sample would report the error
        said.names.push_back(default_sample_name(sample));
      }
    }
    s.deps.link->send(std::move(said));
    return std::nullopt;
  }

  next_step operator()(const end_process& step) const {
    if (step.why) {
      s.deps.link->send(
          protocol::worker_gives_up{step.exit_code, static_cast<std::uint8_t>(step.why->code), step.why->message});
    }
    s.deps.ended(step.exit_code);
    self->quit();
    return std::nullopt;
  }
};

void carry_out(self_pointer self, loader_book::next_step next) {
  while (next) next = std::visit(loader_steps{self}, *next);
}

loader_actor::behavior_type behave(self_pointer self, loader_deps deps) {
  self->state.deps = std::move(deps);
  loader_book& book = self->state.book;
  return {
      [self, &book](const protocol::open_dataset& order) { carry_out(self, book.open(order)); },
      [self, &book](const protocol::assign_slots& order) { carry_out(self, book.assign(order)); },
      [self, &book](const protocol::load_batch& lease) { carry_out(self, book.lease(lease)); },
      [self, &book](const protocol::name_samples& order) { carry_out(self, book.name(order)); },
      [self, &book](const link_lost& news) { carry_out(self, book.link_lost(news.reason)); },
      [self, &book](const wake_up&) { carry_out(self, book.woken(self->state.deps.stopping->load())); },
  };
}

}  // namespace

loader_actor spawn_loader(actors::actor_system& system, loader_deps deps) {
  return actors::spawn(system, behave, std::move(deps));
}

}  // namespace penstock::loader
