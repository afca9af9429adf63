#include "actors/protocol/run_here.hpp"

#include "actors/protocol/actor_settings.hpp"

#include <caf/event_based_actor.hpp>
#include <catch2/catch_test_macros.hpp>

#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

/// Records the thread on which it gets each number, and whether run_here ran it; a promise in `holds` blocks
/// it.
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
  world() {
    actor_ = system_.spawn([this](caf::event_based_actor* self) -> caf::behavior {
      return {[this, self](int number) {
        notes_.add({number, std::this_thread::get_id(), here_.runs(self)});
        if (number == stops_at) {
          stopped_.set_value();
          go_on_.get_future().wait();
        }
        if (number == asks_itself) self->send(self, asks_itself + 1);
      }};
    });
  }
  ~world() {
    caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
    system_.await_all_actors_done();
  }

  /// Sends numbers until one finds the actor waiting.
  notes::one send_until_it_waits() {
    for (int number = 1000;; ++number) {
      here_.send(actor_, number);
      const notes::one seen = notes_.wait_for(number);
      if (seen.by_sender) return seen;
    }
  }

  static constexpr int stops_at = 1;
  static constexpr int asks_itself = 10;
  protocol::actor_settings settings_{1};
  caf::actor_system system_{settings_};
  protocol::run_here here_{system_};
  notes notes_;
  std::promise<void> stopped_;
  std::promise<void> go_on_;
  caf::actor actor_;
};

}  // namespace

TEST_CASE("an idle actor handles a message on the thread that sends it") {
  world w;
  CHECK(w.send_until_it_waits().thread == std::this_thread::get_id());
}

TEST_CASE("a running actor handles the message on its current thread") {
  world w;
  caf::anon_send(w.actor_, world::stops_at);
  w.stopped_.get_future().wait();
  w.here_.send(w.actor_, 2);
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
    w.here_.send(w.actor_, world::asks_itself);
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
  caf::anon_send_exit(w.actor_, caf::exit_reason::user_shutdown);
  w.system_.await_all_actors_done();
  w.here_.send(w.actor_, 3);
  CHECK(!w.notes_.of(3));
}
