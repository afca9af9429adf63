#include "actors/caf/shared_actor.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

struct numbered {
  int number = 0;
};
using heard = actors::hears<numbered>;

}  // namespace

PENSTOCK_ACTOR_MESSAGES(3, heard)

namespace {

/// The thread that handled each number, and whether the sender ran the actor.
struct notes {
  struct one {
    int number = 0;
    std::thread::id thread;
    bool by_sender = false;
  };
  void add(one what) {
    const std::lock_guard hold(mutex);
    all.push_back(what);
  }
  std::optional<one> of(int number) {
    const std::lock_guard hold(mutex);
    for (const one& o : all) {
      if (o.number == number) return o;
    }
    return std::nullopt;
  }
  one wait_for(int number) {
    while (true) {
      if (const auto found = of(number)) return *found;
      std::this_thread::yield();
    }
  }
  std::mutex mutex;
  std::vector<one> all;
};

class world {
 public:
  world() { actor_ = actors::spawn_shared(system_, behave, this); }
  ~world() {
    actors::stop(actor_);
    system_.await_all_actors_done();
  }

  /// Sends numbers until one finds the actor waiting.
  notes::one send_until_it_waits() {
    for (int number = 1000'000;; ++number) {
      actors::tell_and_run(actor_, numbered{number});
      const notes::one seen = notes_.wait_for(number);
      if (seen.by_sender) return seen;
    }
  }

  struct state {
    std::shared_ptr<int> alive = std::make_shared<int>();
  };
  using self_pointer = actors::shared_self<heard::actor, state>;
  static actors::handlers<heard> behave(self_pointer self, world* w) {
    w->state_ = self->state.alive;
    return {[self, w](const numbered& order) {
      if (w->running_.exchange(true)) w->overlapped_ = true;
      w->notes_.add({order.number, std::this_thread::get_id(), self->run_by_sender()});
      if (order.number == stops_at) {
        w->stopped_.set_value();
        w->go_on_.get_future().wait();
      }
      if (order.number == asks_itself) self->send(heard::actor(self), numbered{asks_itself + 1});
      if (order.number == asks_later) self->delayed_send(heard::actor(self), 1ms, numbered{asks_later + 1});
      if (order.number == leaves) self->quit();
      w->running_ = false;
    }};
  }

  static constexpr int stops_at = 1;
  static constexpr int asks_itself = 10;
  static constexpr int asks_later = 20;
  static constexpr int leaves = 30;
  actors::actor_system system_{1, std::integral_constant<int, 3>()};
  notes notes_;
  std::promise<void> stopped_;
  std::promise<void> go_on_;
  std::atomic<bool> running_{false};
  std::atomic<bool> overlapped_{false};
  heard::actor actor_;
  std::weak_ptr<int> state_;
};

}  // namespace

TEST_CASE("an idle actor handles a message on the thread that sends it") {
  world w;
  CHECK(w.send_until_it_waits().thread == std::this_thread::get_id());
}

TEST_CASE("a running actor handles the message on its current thread") {
  world w;
  actors::tell(w.actor_, numbered{world::stops_at});
  w.stopped_.get_future().wait();
  actors::tell_and_run(w.actor_, numbered{2});
  CHECK(!w.notes_.of(2));
  w.go_on_.set_value();
  const notes::one seen = w.notes_.wait_for(2);
  CHECK(seen.thread != std::this_thread::get_id());
  CHECK(!seen.by_sender);
}

TEST_CASE("an actor's message to itself is not handled on the sender's thread") {
  world w;
  w.send_until_it_waits();
  while (true) {
    actors::tell_and_run(w.actor_, numbered{world::asks_itself});
    const notes::one asked = w.notes_.wait_for(world::asks_itself);
    const notes::one answered = w.notes_.wait_for(world::asks_itself + 1);
    CHECK(answered.thread != std::this_thread::get_id());
    CHECK(!answered.by_sender);
    if (asked.by_sender) return;
    w.notes_.all.clear();
  }
}

TEST_CASE("an actor that has ended handles no message, on any thread") {
  world w;
  actors::stop(w.actor_);
  w.system_.await_all_actors_done();
  actors::tell_and_run(w.actor_, numbered{3});
  CHECK(!w.notes_.of(3));
}

TEST_CASE("messages are handled in the order of arrival, whether or not their sender may run the actor") {
  world w;
  constexpr int first = 100;
  constexpr int last = 1100;
  for (int number = first; number < last; ++number) {
    if (number % 3 == 0) {
      actors::tell_and_run(w.actor_, numbered{number});
    } else {
      actors::tell(w.actor_, numbered{number});
    }
  }
  w.notes_.wait_for(last - 1);
  for (int number = first; number < last; ++number)
    REQUIRE(w.notes_.all[static_cast<std::size_t>(number - first)].number == number);
}

TEST_CASE("several threads that run the actor never run it at the same time, and lose no message") {
  world w;
  constexpr int threads = 4;
  constexpr int each = 5000;
  {
    std::vector<std::jthread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&, t] {
        for (int i = 0; i < each; ++i) actors::tell_and_run(w.actor_, numbered{100 + t * each + i});
      });
    }
  }
  w.send_until_it_waits();
  CHECK_FALSE(w.overlapped_);
  const std::lock_guard hold(w.notes_.mutex);
  std::vector<int> next(threads, 0);
  for (const notes::one& o : w.notes_.all) {
    if (o.number >= 1000'000) continue;
    const int t = (o.number - 100) / each;
    CHECK((o.number - 100) % each == next[static_cast<std::size_t>(t)]++);
  }
  CHECK(next == std::vector<int>(threads, each));
}

TEST_CASE("a delayed message wakes an idle actor on the system's threads") {
  world w;
  actors::tell_and_run(w.actor_, numbered{world::asks_later});
  const notes::one seen = w.notes_.wait_for(world::asks_later + 1);
  CHECK(seen.thread != std::this_thread::get_id());
}

TEST_CASE("an actor that quits drops its state and terminates, whichever thread runs it") {
  world w;
  REQUIRE_FALSE(w.state_.expired());
  SECTION("the sender") {
    w.send_until_it_waits();
    actors::tell_and_run(w.actor_, numbered{world::leaves});
  }
  SECTION("the system") {
    actors::tell(w.actor_, numbered{world::leaves});
  }
  w.system_.await_all_actors_done();
  CHECK(w.state_.expired());
}
