// The loader worker actor: the only actor of a worker process. It carries out the steps of loader_book, which decides what each
// message leads to.
//
//   receives  open_dataset, assign_slots, load_batch, name_samples, link_lost
//             (stop_work sets `stopping` at once, ahead of leases)
//   sends     dataset_described, worker_ready, batch_loaded, samples_named, worker_gives_up
//   owns      the dataset, the mapped slots, its page of the flight recorder
//
// If the dataset crashes, the process dies, and the session finds the sample in the flight recorder.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/loader/expected_leases.hpp"
#include "actors/protocol/link.hpp"

#include <penstock/worker.hpp>

#include <atomic>
#include <functional>
#include <memory>

namespace penstock::loader {

/// The session has closed the link, or violated the protocol.
struct link_lost {
  std::string reason;
};

/// Sent by the io thread when the worker must stop, or has an urgent lease: wakes an idle actor.
struct wake_up {};

using heard =
    actors::hears<protocol::open_dataset, protocol::assign_slots, protocol::load_batch, protocol::name_samples, link_lost, wake_up>;
inline constexpr std::integral_constant<int, 1> messages{};

}  // namespace penstock::loader

PENSTOCK_ACTOR_MESSAGES(1, penstock::loader::heard)

namespace penstock::loader {

using loader_actor = heard::actor;

struct loader_deps {
  dataset_factory make_dataset;
  std::shared_ptr<protocol::session_link> link;
  int link_descriptor = -1;
  std::atomic<bool>* stopping = nullptr;
  std::shared_ptr<expected_leases> expected;
  /// Called once, when the actor ends, with the exit code for the process.
  std::function<void(int)> ended;
};

loader_actor spawn_loader(actors::actor_system& system, loader_deps deps);

}  // namespace penstock::loader
