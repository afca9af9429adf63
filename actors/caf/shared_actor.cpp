#include "actors/caf/shared_actor.hpp"

#if !PENSTOCK_CAF_1
#include <caf/scoped_execution_unit.hpp>
#endif

namespace penstock::actors::detail {

thread_local shared_queue::sending* shared_queue::sending::on_this_thread = nullptr;

shared_queue::shared_queue(actor_system& system)
    : system_(system),
      actor_(caf::actor_cast<caf::strong_actor_ptr>(system.of_caf().spawn<caf::actor_companion>())) {}

caf::actor_companion& shared_queue::actor() const noexcept {
  return static_cast<caf::actor_companion&>(*caf::actor_cast<caf::abstract_actor*>(actor_));
}

void shared_queue::start(caf::behavior handlers) {
  actor().become(std::move(handlers));
  in_the_system_ =
      system_.of_caf().spawn([queue = shared_from_this()]() -> hears_turns::actor::behavior_type {
        return {[queue](const run_turns&) { queue->run_all(); }};
      });
  actor().on_enqueue(
      [queue = shared_from_this()](caf::mailbox_element_ptr message) { queue->arrived(std::move(message)); });
}

/// Must not handle the message here: CAF holds the companion's lock, and the actor could not end before CAF
/// releases it.
void shared_queue::arrived(caf::mailbox_element_ptr message) {
  std::unique_lock hold(mutex_);
  if (actor_ == nullptr) return;
  waiting_.push_back(std::move(message));
  if (std::exchange(busy_, true)) return;
  hold.unlock();  // the thread that is woken needs the lock
  if (sending::on_this_thread != nullptr) {
    sending::on_this_thread->woken = shared_from_this();
  } else {
    tell(in_the_system_, run_turns{});
  }
}

void shared_queue::run_one() {
  std::unique_lock hold(mutex_);
  const caf::strong_actor_ptr actor = actor_;
  const caf::mailbox_element_ptr message = std::move(waiting_.front());
  waiting_.erase(waiting_.begin());
  hold.unlock();
  by_sender_ = true;
  const bool lives = run(*message, actor);
  by_sender_ = false;
  if (!lives) return;
  hold.lock();
  busy_ = !waiting_.empty();
  if (!busy_) return;
  const hears_turns::actor in_the_system = in_the_system_;  // the actor may end before tell() returns
  hold.unlock();
  tell(in_the_system, run_turns{});
}

void shared_queue::run_all() {
  std::vector<caf::mailbox_element_ptr> messages;
  std::unique_lock hold(mutex_);
  const caf::strong_actor_ptr actor = actor_;
  while (!waiting_.empty()) {
    messages.clear();
    messages.swap(waiting_);
    hold.unlock();
    for (const caf::mailbox_element_ptr& message : messages) {
      if (!run(*message, actor)) return;
    }
    hold.lock();
  }
  busy_ = false;
}

bool shared_queue::run(caf::mailbox_element& message, const caf::strong_actor_ptr& actor) {
  auto& companion = static_cast<caf::actor_companion&>(*caf::actor_cast<caf::abstract_actor*>(actor));
#if PENSTOCK_CAF_1
  auto* const threads = &system_.of_caf().scheduler();
#else
  auto* const threads = system_.of_caf().dummy_execution_unit();
#endif
  if (companion.activate(threads, message) != caf::actor_companion::activation_result::terminated)
    return true;
  drop_state();
  const std::lock_guard hold(mutex_);
  waiting_.clear();
  actor_ = nullptr;
  stop(in_the_system_);
  in_the_system_ = nullptr;
  return false;
}

}  // namespace penstock::actors::detail
