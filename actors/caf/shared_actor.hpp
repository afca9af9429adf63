// An actor whose messages may be handled on the thread that sends them, because waking a thread of the actor
// system takes longer than most handlers. Only for actors whose handlers neither block nor call the sender.
//
// CAF passes every message to the actor's own queue (caf::actor_companion), in the order of arrival. A thread
// that calls tell_and_run() and finds the actor idle handles its own message, and only that one. A second actor,
// on the system's threads, handles all other messages. Like any actor, a shared actor runs on one thread at a
// time.
#pragma once

#include "actors/caf/caf.hpp"

#include <caf/actor_companion.hpp>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock::actors {

namespace detail {

struct run_turns {};
using hears_turns = hears<run_turns>;

/// The messages of a shared actor, and which thread handles them.
class shared_queue : public std::enable_shared_from_this<shared_queue> {
 public:
  explicit shared_queue(actor_system& system);
  virtual ~shared_queue() = default;
  shared_queue(const shared_queue&) = delete;
  shared_queue& operator=(const shared_queue&) = delete;

  /// Call before the first message.
  void start(caf::behavior handlers);
  [[nodiscard]] caf::actor_companion& actor() const noexcept;
  template <class Handle>
  [[nodiscard]] Handle handle() const {
    return caf::actor_cast<Handle>(actor_);
  }
  /// Called by the actor's own handlers.
  [[nodiscard]] bool run_by_sender() const noexcept { return by_sender_; }

  /// Calls `send`. If `send` sends a message to an idle shared actor, this thread handles the message.
  template <class Send>
  static void send_and_run(Send send) {
    std::shared_ptr<shared_queue> woken;
    {
      sending here;
      send();
      woken = std::move(here.woken);
    }
    if (woken != nullptr) woken->run_one();
  }

 private:
  struct sending {
    sending() { on_this_thread = this; }
    ~sending() { on_this_thread = nullptr; }
    sending(const sending&) = delete;
    sending& operator=(const sending&) = delete;
    std::shared_ptr<shared_queue> woken;
    static thread_local sending* on_this_thread;
  };

  void arrived(caf::mailbox_element_ptr message);
  void run_one();
  void run_all();
  /// Handles a message. False if the actor has ended.
  bool run(caf::mailbox_element& message, const caf::strong_actor_ptr& actor);
  virtual void drop_state() = 0;

  actor_system& system_;
  bool by_sender_ = false;  // used only by the thread that runs the actor
  std::mutex mutex_;
  std::vector<caf::mailbox_element_ptr> waiting_;
  bool busy_ = false;                 // a thread runs the actor or is about to
  caf::strong_actor_ptr actor_;       // null: the actor has ended
  hears_turns::actor in_the_system_;  // runs the actor on the system's threads
};

template <class State>
class shared_state final : public shared_queue {
 public:
  using shared_queue::shared_queue;
  State& state() noexcept { return *state_; }

 private:
  void drop_state() override { state_.reset(); }
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

}  // namespace detail

/// Like `self`, for a shared actor.
template <class Handle, class State>
class shared_self {
 public:
  explicit shared_self(detail::shared_state<State>& actor) : state(actor.state()), actor_(&actor) {}
  const shared_self* operator->() const noexcept { return this; }
  explicit operator Handle() const { return actor_->template handle<Handle>(); }

  template <class To, class Message>
  void send(const To& to, Message&& message) const {
#if PENSTOCK_CAF_1
    actor_->actor().mail(std::forward<Message>(message)).send(to);
#else
    actor_->actor().send(to, std::forward<Message>(message));
#endif
  }
  template <class To, class Delay, class Message>
  void delayed_send(const To& to, Delay delay, Message&& message) const {
#if PENSTOCK_CAF_1
    actor_->actor().mail(std::forward<Message>(message)).delay(delay).send(to);
#else
    actor_->actor().delayed_send(to, delay, std::forward<Message>(message));
#endif
  }
  [[nodiscard]] auto& clock() const noexcept {
    return actor_->actor().clock();
  }
  void quit() const {
    actor_->actor().quit();
  }
  /// Whether the current message is handled by the thread that sent it with tell_and_run().
  [[nodiscard]] bool run_by_sender() const noexcept {
    return actor_->run_by_sender();
  }

  State& state;

 private:
  detail::shared_state<State>* actor_;
};

/// The handlers of a shared actor: one for each message of the list.
template <class List>
struct handlers;
template <class... Messages>
struct handlers<hears<Messages...>> {
  template <class... Handlers>
  handlers(Handlers... all) : of_caf{std::move(all)...} {
    static_assert(sizeof...(Handlers) == sizeof...(Messages));
    static_assert((takes<Messages, Handlers...> && ...), "a message has no handler");
  }
  caf::behavior of_caf;

 private:
  template <class Message, class... Handlers>
  static constexpr bool takes = (std::is_invocable_v<Handlers, const Message&> || ...);
};

/// The actor must end by quit(): it keeps itself alive until then.
template <class List, class State, class Deps>
typename List::actor spawn_shared(actor_system& system,
                                  handlers<List> (*behave)(shared_self<typename List::actor, State>, Deps),
                                  Deps deps) {
  const auto actor = std::make_shared<detail::shared_state<State>>(system);
  const auto handle = actor->template handle<typename List::actor>();
  actor->start(behave(shared_self<typename List::actor, State>(*actor), std::move(deps)).of_caf);
  return handle;
}

/// From any thread. If `to` is an idle shared actor, this thread handles the message; otherwise the same as
/// tell().
template <class Handle, class Message>
void tell_and_run(const Handle& to, Message&& message) {
  detail::shared_queue::send_and_run([&] { tell(to, std::forward<Message>(message)); });
}

}  // namespace penstock::actors

PENSTOCK_ACTOR_MESSAGES(2, penstock::actors::detail::hears_turns)
