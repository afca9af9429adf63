#include "runtime/process/spawner.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/child_end.hpp"

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace penstock::process {
namespace {

// After SIGKILL only a process in an uninterruptible system call takes longer.
constexpr std::chrono::milliseconds time_to_die{2000};

struct order {
  spawn_request request;
  std::vector<unique_fd> descriptors;  // copies of the descriptors in the request
  std::optional<failure> refused;      // why the request was refused before it reached the thread
  spawner::done then;
  std::shared_ptr<start_control> control;
};

}  // namespace

unclaimed_child::~unclaimed_child() {
  if (child_.pid <= 0 || !child_.pidfd) return;
  signal_group(child_, SIGKILL);
  reap(child_, time_to_die);
}

/// Shared with the thread, which may outlive the spawner.
struct spawner::gate {
  std::mutex mutex;
  bool closed = false;
  // Describes the request being started. Stored here so that an abandoned thread holds no reference to the
  // session.
  std::string current;
  std::shared_ptr<start_control> control;
  done then;

  void note(const char* what, const std::string& program) {
    const std::lock_guard hold(mutex);
    current = fmt::format("{} '{}'", what, printable(program));
  }

  result<unclaimed_child> execute(order& o) {
    if (o.refused) return tl::unexpected(std::move(*o.refused));
    if (o.control->given_up())
      return refuse(errc::system, "starting '{}' was cancelled before its turn came",
                    printable(o.request.program));
    note("looking for", o.request.program);
    auto program = find_program(o.request.program);
    if (!program) return tl::unexpected(std::move(program.error()));
    o.request.program = std::move(*program);
    note("executing", o.request.program);
    auto started = spawn(o.request, o.control.get());
    o.descriptors.clear();
    if (!started) return tl::unexpected(std::move(started.error()));
    return unclaimed_child(std::move(*started), o.request.program);
  }

  void carry_out(order& o) {
    {
      const std::lock_guard hold(mutex);
      if (closed) return;
      then = std::move(o.then);
      control = o.control;
    }
    auto made = execute(o);
    const std::lock_guard hold(mutex);
    current.clear();
    control.reset();
    if (!closed) std::exchange(then, {})(std::move(made));
  }
};

spawner::spawner() : gate_(std::make_shared<gate>()), thread_("penstock-spawn") {}

spawner::~spawner() {
  done dropped;
  {
    const std::lock_guard hold(gate_->mutex);
    gate_->closed = true;
    dropped.swap(gate_->then);
    if (gate_->control) gate_->control->give_up();
  }
  if (thread_.stop_within(side_thread::patience)) return;
  const std::lock_guard hold(gate_->mutex);
  log::warn("process", "{} has taken more than {} ms: its file system is not responding; giving up on it",
            gate_->current, side_thread::patience.count());
}

std::string spawner::current() const {
  const std::lock_guard hold(gate_->mutex);
  return gate_->current;
}

std::shared_ptr<start_control> spawner::start(spawn_request request, done then) {
  const auto control = std::make_shared<start_control>();
  const auto made = std::make_shared<order>(order{std::move(request), {}, {}, std::move(then), control});
  for (inherited_fd& fd : made->request.fds) {
    unique_fd kept(::fcntl(fd.ours, F_DUPFD_CLOEXEC, 0));
    if (!kept) {
      made->refused = os_failure(
          errc::system, errno,
          fmt::format("starting '{}': duplicating a descriptor for it", printable(made->request.program)));
      break;
    }
    fd.ours = kept.get();
    made->descriptors.push_back(std::move(kept));
  }
  if (!thread_.post([kept = gate_, made] { kept->carry_out(*made); }))
    made->then(tl::unexpected(os_failure(errc::system, EAGAIN, "creating the thread that starts processes")));
  return control;
}

}  // namespace penstock::process
