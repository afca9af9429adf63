#include "actors/loader/loader_actor.hpp"
#include "actors/protocol/actor_settings.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/process/rehearsal.hpp"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <future>

namespace penstock {
namespace {

constexpr int exit_configuration = 78;
constexpr std::chrono::milliseconds heartbeat_interval{50};
constexpr std::chrono::seconds farewell_deadline{1};

bool is_socket(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode);
}

/// Programs that the dataset starts must not hold our ends open: the session would not see us die.
void keep_from_grandchildren() {
  for (const int fd : {protocol::child_fd::link, protocol::child_fd::lifeline, protocol::child_fd::arena,
                       protocol::child_fd::flight, protocol::child_fd::index}) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

/// Which page of the flight recorder is ours is known only when the session has said who we are; until then
/// the start deadline watches.
class heart {
 public:
  void beat() {
    if (auto* page = page_.load(std::memory_order_acquire)) page->beat(process::own_rss_bytes());
  }
  void adopt(std::uint32_t worker) {
    auto mapped = arena::flight_writer::map(protocol::child_fd::flight, worker);
    if (!mapped) return;
    storage_ = std::make_unique<arena::flight_writer>(std::move(*mapped));
    storage_->beat(process::own_rss_bytes());  // it may not live to the next one
    page_.store(storage_.get(), std::memory_order_release);
  }

 private:
  std::unique_ptr<arena::flight_writer> storage_;
  std::atomic<arena::flight_writer*> page_{nullptr};
};

}  // namespace

int worker_main(const dataset_factory& make) {
  if (!is_socket(protocol::child_fd::link)) {
    std::fputs(
        "This is a loader worker of penstock. A penstock session starts it; see `penstock help run`.\n",
        stderr);
    return exit_configuration;
  }
  process::write_stack_when_dying();
  process::accept_rehearsed_faults();
  keep_from_grandchildren();
  heart pulse;
  const process::lifeline_guard guard(protocol::child_fd::lifeline, heartbeat_interval,
                                      [&] { pulse.beat(); });

  std::atomic<bool> stopping{false};
  std::promise<int> exit_code;
  process::io_thread io;
  protocol::actor_settings settings(1);
  caf::actor_system system(settings);
  loader::loader_actor loader;

  // Messages come on the io thread and go to the actor as they are; only "stop" overtakes the leases before
  // it.
  const auto deliver = [&](protocol::to_worker&& message) {
    std::visit(
        [&](auto&& m) {
          using type = std::remove_cvref_t<decltype(m)>;
          if constexpr (std::is_same_v<type, protocol::stop_work>) {
            stopping = true;
            caf::anon_send(loader, loader::wake_up{});
          } else {
            if constexpr (std::is_same_v<type, protocol::open_dataset>) pulse.adopt(m.you.worker);
            caf::anon_send(loader, std::forward<decltype(m)>(m));
          }
        },
        std::move(message));
  };
  const auto closed = [&](const std::string& reason) {
    stopping = true;
    caf::anon_send(loader, loader::link_lost{reason});
  };
  const auto link =
      protocol::session_link::make(io.context(), unique_fd(protocol::child_fd::link), {deliver, closed});
  loader =
      loader::spawn_loader(system, {make, link, &stopping, [&](int code) { exit_code.set_value(code); }});
  link->send(protocol::hello{protocol::hello::expected_magic, protocol::version, ::getpid()});
  boost::asio::post(io.context(), [&] { link->start(); });

  const int code = exit_code.get_future().get();
  std::promise<void> sent;
  link->when_sent([&] { sent.set_value(); });
  sent.get_future().wait_for(farewell_deadline);
  boost::asio::post(io.context(), [&] { link->close(); });
  std::fflush(nullptr);
  // User code may have left threads and static objects behind whose destruction nobody has tested; the
  // session only waits for the end of the process.
  ::_exit(code);
}

}  // namespace penstock
