// Sends a message and runs its receiver on the sending thread, if that was waiting for messages: waking a thread of the
// actor system takes longer than most of what actors do. A receiver that is running already gets the message where it
// runs, so an actor is on one thread at a time as ever. For actors whose handlers neither block nor call the sender.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/resumable.hpp>
#include <caf/scoped_execution_unit.hpp>
#include <caf/send.hpp>

#include <cstddef>
#include <utility>

namespace penstock::protocol {

/// Thread-safe. Lives at least as long as the actors that it runs; no send() is under way when their system ends.
class run_here {
 public:
  explicit run_here(caf::actor_system& system) : unit_(&system) {}

  /// The receiver handles just this message here; what else has arrived meanwhile, on the system's threads.
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
  /// Gets the actor, with a reference, if the message has woken it. Not used to run it, because actors keep a pointer
  /// to what runs them.
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

  caf::scoped_execution_unit unit_;  // what an actor wakes goes to the system's threads
};

}  // namespace penstock::protocol
