// A GPU owner that runs as threads of this process, as its keeper sees it, with a stand-in for NCCL.
#include "actors/session/owner_inside.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/group/group_messages.hpp"
#include "tests/actors/session/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

using namespace penstock;
using namespace std::chrono_literals;
using penstock::session::owner_inside;
using act = gpu_owner::communicate::act;
using how = group::communicator_state::how;

namespace {

constexpr nanoseconds abort_timeout = 300ms;

class keeper {
 public:
  explicit keeper(const char* trouble = "") {
    ::setenv("PENSTOCK_NCCL", FAKE_NCCL_LIBRARY, 1);
    ::setenv("PENSTOCK_FAKE_NCCL", trouble, 1);
    owner_->report_to([this](owner_inside::news what) {
      const std::lock_guard hold(mutex_);
      heard_.push_back(std::move(what));
      changed_.notify_all();
    });
  }
  ~keeper() {
    owner_->shut_down();
    ::unsetenv("PENSTOCK_NCCL");
    ::unsetenv("PENSTOCK_FAKE_NCCL");
  }

  /// Waits for the first matching message and returns it.
  template <class News, class Fits>
  News wait_for(Fits fits) {
    std::unique_lock hold(mutex_);
    std::optional<News> found;
    REQUIRE(changed_.wait_for(hold, 30s, [&] {
      for (const owner_inside::news& one : heard_) {
        const auto* const news = std::get_if<News>(&one);
        if (!found && news != nullptr && fits(*news)) found = *news;
      }
      return found.has_value();
    }));
    return *found;
  }
  template <class Message, class Fits>
  Message wait_for_words(std::uint32_t incarnation, Fits fits) {
    const auto news = wait_for<supervisor::owner_spoke>([&](const supervisor::owner_spoke& said) {
      const auto* const words = std::get_if<Message>(&said.message);
      return said.incarnation == incarnation && words != nullptr && fits(*words);
    });
    return std::get<Message>(news.message);
  }

  /// Returns when the device is open.
  std::shared_ptr<protocol::owner_link> start(std::uint32_t incarnation) {
    owner_->start(incarnation);
    const auto started = wait_for<supervisor::owner_started>(
        [&](const supervisor::owner_started& news) { return news.incarnation == incarnation; });
    CHECK(started.pid == ::getpid());
    config c;
    c.gpu.device = "host";
    c.sampler.rank = 0;
    c.group.communicator = communicator_kind::nccl;
    c.group.abort_timeout = abort_timeout;
    protocol::open_owner open;
    open.incarnation = incarnation;
    open.config = protocol::config_as_bytes(c);
    started.link->send(open);
    wait_for_words<protocol::owner_opened>(incarnation, [](const auto&) { return true; });
    return started.link;
  }
  /// Makes the communicator of a group of one.
  void make_communicator(std::uint32_t incarnation, protocol::owner_link& link) {
    link.send(protocol::wire_communicate{static_cast<std::uint32_t>(act::draw_id), 1, {}, 0});
    const auto drawn = wait_for_words<protocol::communicator_changed>(
        incarnation, [](const auto& news) { return !news.id.empty(); });
    link.send(protocol::wire_communicate{static_cast<std::uint32_t>(act::make), 1, drawn.id, 0});
    wait_for_state(incarnation, how::made);
  }
  protocol::communicator_changed wait_for_state(std::uint32_t incarnation, how at) {
    return wait_for_words<protocol::communicator_changed>(
        incarnation, [&](const auto& news) { return static_cast<how>(news.at) == at && news.id.empty(); });
  }
  supervisor::owner_exited wait_for_end(std::uint32_t incarnation) {
    return wait_for<supervisor::owner_exited>(
        [&](const supervisor::owner_exited& news) { return news.incarnation == incarnation; });
  }
  void signal(std::uint32_t incarnation, int number) { owner_->signal(incarnation, number); }
  void shut_down() { owner_->shut_down(); }

 private:
  arena::arena memory_ = arena::arena::create().value();
  arena::flight_recorders flights_ = arena::flight_recorders::create(1).value();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<owner_inside::news> heard_;
  process::io_thread io_;
  std::shared_ptr<owner_inside> owner_ = std::make_shared<owner_inside>(
      io_, owner_inside::deps{memory_.fd(), flights_.fd(), abort_timeout});
};

}  // namespace

TEST_CASE("an embedded owner ends after a signal, and the next one opens its own device") {
  keeper k;
  static_cast<void>(k.start(1));
  k.signal(1, SIGCONT);
  k.signal(1, SIGKILL);
  CHECK(k.wait_for_end(1).report.exited_with(exit_codes::finished));
  static_cast<void>(k.start(2));
}

TEST_CASE("before an embedded owner ends, it aborts its communicator and reports it as broken") {
  keeper k;
  const auto link = k.start(1);
  k.make_communicator(1, *link);
  k.signal(1, SIGKILL);
  CHECK(k.wait_for_state(1, how::broken).cause == "this rank's GPU owner is ending");
  k.wait_for_state(1, how::aborted);
  CHECK(k.wait_for_end(1).report.exited_with(exit_codes::finished));
  const auto next = k.start(2);
  k.make_communicator(2, *next);
}

TEST_CASE("an embedded owner releases its communicator when the session closes the link") {
  keeper k;
  const auto link = k.start(1);
  k.make_communicator(1, *link);
  const steady_time begin = std::chrono::steady_clock::now();
  k.shut_down();
  CHECK(std::chrono::steady_clock::now() - begin < 2s);
}

TEST_CASE("a hanging abort leaves the owner's threads behind after abort_timeout, with a permanent failure") {
  keeper k("abort-hangs");
  const auto link = k.start(1);
  k.make_communicator(1, *link);
  const steady_time begin = std::chrono::steady_clock::now();
  k.signal(1, SIGKILL);
  const auto words = k.wait_for_words<protocol::worker_gives_up>(1, [](const auto&) { return true; });
  CHECK(static_cast<errc>(words.kind) == errc::group_failed);
  CHECK(
      words.reason.starts_with("communicator 1 cannot be aborted: the abort has not returned for 300ms; "
                               "[gpu] placement = \"embedded\""));
  CHECK(k.wait_for_end(1).report.exited_with(exit_codes::failed));
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  k.shut_down();
}

TEST_CASE("a session whose device program has a communicator refuses to give batches to its own program") {
  const keeper names_the_library;
  // A group of one rank, as torchrun would start it.
  const std::map<const char*, const char*> launcher{{"RANK", "0"},
                                                    {"LOCAL_RANK", "0"},
                                                    {"WORLD_SIZE", "1"},
                                                    {"LOCAL_WORLD_SIZE", "1"},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", "29500"},
                                                    {"PENSTOCK_GROUP", "owner-inside"}};
  for (const auto& [name, value] : launcher) ::setenv(name, value, 1);
  config c = penstock::testing::small();
  c.group.communicator = communicator_kind::nccl;
  session_options options = penstock::testing::quietly();
  options.join_group = true;
  Session session(c, options);
  for (const auto& [name, value] : launcher) ::unsetenv(name);
  CHECK_THROWS_MATCHES(session.next(), error,
                       Catch::Matchers::MessageMatches(
                           Catch::Matchers::ContainsSubstring("call run_for() instead of taking them")));
}
