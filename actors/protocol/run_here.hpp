// Sends a message and, if the receiver was idle, runs it on the sending thread: waking a thread of the actor
// system takes longer than most handlers. A receiver that is already running handles the message on its
// current thread, so an actor still runs on one thread at a time. Only for actors whose handlers neither
// block nor call the sender.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/resumable.hpp>
#include <caf/scoped_execution_unit.hpp>
#include <caf/send.hpp>

#include <cstddef>
#include <utility>

namespace penstock::protocol {

/// Thread-safe. Must outlive the actors that it runs; no send() may be in progress when their system ends.
class run_here {
 public:
  explicit run_here(caf::actor_system& system) : unit_(&system) {}

  /// The receiver handles only this message here. The system's threads handle whatever else has arrived.
  template <class Handle, class Message>
  void send(const Handle& to, Message&& message) {
    if (!to) return;
    catcher woken;
    to->eq_impl(caf::make_message_id(), nullptr, &woken, std::forward<Message>(message));
    if (woken.actor != nullptr) run(woken.actor);
  }

  /// Whether `self` is being run by send(). Only for `self` itself.
  template <class Pointer>
  [[nodiscard]] bool runs(Pointer self) const noexcept {
    return self->context() == &unit_;
  }

 private:
  /// Receives the actor, with a reference, if the message has woken it. Does not run the actor itself,
  /// because actors keep a pointer to the execution unit that runs them.
  struct catcher final : caf::execution_unit {
    void exec_later(caf::resumable* ready) override { actor = ready; }
    caf::resumable* actor = nullptr;
  };

  void run(caf::resumable* actor) {
    constexpr std::size_t messages = 1;
    if (actor->resume(&unit_, messages) == caf::resumable::resume_later) {
      unit_.exec_later(actor);
    } else {
      caf::intrusive_ptr_release(actor);
    }
  }

  caf::scoped_execution_unit unit_;  // actors woken by the handler run on the system's threads
};

}  // namespace penstock::protocol
