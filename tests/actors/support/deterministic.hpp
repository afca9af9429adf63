// Actors as scripts of messages: the test delivers each message and advances the clock. Recorders receive the
// messages of the actor under test to other actors; the test reads the other ends of its links.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/protocol/link.hpp"
#include "actors/protocol/local/actors.hpp"
#include "tests/actors/support/scripted_system.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

namespace penstock::testing {

class deterministic_system {
 public:
  deterministic_system() = default;
  ~deterministic_system() { deliver(); }
  deterministic_system(const deterministic_system&) = delete;
  deterministic_system& operator=(const deterministic_system&) = delete;

  /// Delivers messages until every mailbox is empty.
  void deliver() { script_.deliver(); }
  /// Advances the clock in steps, so that timers that set further timers fire in order.
  void pass(nanoseconds time, nanoseconds step = std::chrono::milliseconds(50)) {
    for (nanoseconds passed{0}; passed < time; passed += step) {
      script_.advance(std::min(step, time - passed));
      deliver();
    }
  }
  [[nodiscard]] steady_time now() { return system.of_caf().clock().now(); }

 private:
  scripted_system script_;

 public:
  actors::actor_system system{script_.system()};
};

/// An actor that records the messages in the list. In a real actor system other threads send them: pass all() the number to wait for.
template <class Heard>
class recorder;

template <class... Messages>
class recorder<protocol::hears<Messages...>> {
 public:
  using handle = typename protocol::hears<Messages...>::actor;
  using heard = std::variant<Messages...>;

  explicit recorder(actors::actor_system& system)
      : actor(system.of_caf().spawn([log = log_]() -> typename handle::behavior_type {
          return {[log](const Messages& message) { log->add(message); }...};
        })) {}
  ~recorder() { actors::stop(actor); }
  recorder(const recorder&) = delete;
  recorder& operator=(const recorder&) = delete;

  /// The messages of this type. Waits until there are at least this many, for 20 s at most.
  template <class Message>
  [[nodiscard]] std::vector<Message> all(std::size_t at_least = 0) const {
    std::unique_lock hold(log_->mutex);
    std::vector<Message> found;
    log_->more.wait_for(hold, std::chrono::seconds(20), [&] {
      found.clear();
      for (const heard& one : log_->messages) {
        if (const auto* message = std::get_if<Message>(&one)) found.push_back(*message);
      }
      return found.size() >= at_least;
    });
    return found;
  }

 private:
  struct log {
    std::mutex mutex;
    std::condition_variable more;
    std::vector<heard> messages;

    void add(const auto& message) {
      const std::lock_guard hold(mutex);
      messages.emplace_back(message);
      more.notify_all();
    }
  };
  std::shared_ptr<log> log_ = std::make_shared<log>();

 public:
  handle actor;
};

/// A link whose other end records the messages it gets.
template <class Link, class Peer, class Told>
class told_child {
 public:
  told_child() {
    auto ends = protocol::make_link_pair().value();
    link = Link::make(io_, std::move(ends.first), {});
    peer_ = Peer::make(io_, std::move(ends.second), {[this](Told&& message) { told_.push_back(std::move(message)); }, {}});
    link->start();
    peer_->start();
  }
  ~told_child() {
    link->close();
    peer_->close();
    io_.poll();
  }
  told_child(const told_child&) = delete;
  told_child& operator=(const told_child&) = delete;

  /// The messages received so far, in order.
  const std::vector<Told>& told() {
    io_.restart();
    while (io_.poll() > 0) io_.restart();
    return told_;
  }
  template <class Message>
  std::vector<Message> all() {
    std::vector<Message> found;
    for (const Told& one : told()) {
      if (const auto* message = std::get_if<Message>(&one)) found.push_back(*message);
    }
    return found;
  }

 private:
  boost::asio::io_context io_;
  std::vector<Told> told_;
  std::shared_ptr<Peer> peer_;

 public:
  std::shared_ptr<Link> link;
};

using told_worker = told_child<protocol::worker_link, protocol::session_link, protocol::to_worker>;
using told_owner = told_child<protocol::owner_link, protocol::owners_session_link, protocol::to_owner>;

}  // namespace penstock::testing
