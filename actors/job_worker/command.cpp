#include "actors/job_worker/command.hpp"

#include "actors/job_worker/abort_notice.hpp"
#include "actors/job_worker/command_family.hpp"
#include "actors/job_worker/command_start.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/process/process_facts.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>

namespace penstock::job_worker {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds memory_is_looked_at_every{50};
constexpr std::chrono::milliseconds orphans_are_looked_at_every{1000};

/// Limits the private memory of a command and all processes that it started.
class memory_limit {
 public:
  memory_limit(const command_family& family, std::uint64_t most) : family_(family), most_(most) {}

  [[nodiscard]] bool exists() const { return most_ > 0; }
  /// Kills all of them if they exceed the limit. Checks at most every memory_is_looked_at_every.
  void enforce() {
    if (most_ == 0 || clock::now() < next_look_) return;
    next_look_ = clock::now() + memory_is_looked_at_every;
    const std::uint64_t now = private_bytes();
    if (now <= most_) return;
    exceeded_ = now;
    family_.kill();
  }
  /// The memory in use when they were killed; 0: they were not killed.
  [[nodiscard]] std::uint64_t exceeded() const { return exceeded_; }

 private:
  [[nodiscard]] std::uint64_t private_bytes() const {
    std::uint64_t sum = 0;
    for (const pid_t one : family_.members()) {
      if (const auto facts = process::look_at(one)) sum += facts->rss_anon_bytes;
    }
    return sum;
  }

  const command_family& family_;
  std::uint64_t most_;
  std::uint64_t exceeded_ = 0;
  clock::time_point next_look_ = clock::now();
};

/// Reads until the command itself exits, not until end of file: processes that it started may keep the pipes
/// open. Returns early if the worker must die.
int status_of(const process::child& command, captured_output& out, captured_output& err, memory_limit& memory,
              command_family& family, group_watchdog& watchdog, const abort_notice& notice) {
  const auto patience = memory.exists() ? memory_is_looked_at_every : orphans_are_looked_at_every;
  for (bool over = false; !over;) {
    std::array<pollfd, 5> news{{{out.fd(), POLLIN, 0},
                                {err.fd(), POLLIN, 0},
                                {command.pidfd.get(), POLLIN, 0},
                                {notice.fd(), POLLIN, 0},
                                {watchdog.fd(), POLLIN, 0}}};
    const int ready = ::poll(news.data(), news.size(), static_cast<int>(patience.count()));
    if (notice.has_come()) return 0;
    memory.enforce();
    family.reap_orphans(command.pid);
    if (ready <= 0) continue;
    over = news[2].revents != 0;
    if (news[0].revents != 0) out.take();
    if (news[1].revents != 0) err.take();
    if (news[4].revents != 0)
      static_cast<void>(watchdog.start());  // if it fails, no watchdog watches the groups
  }
  int status = 0;
  while (::waitpid(command.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// Ends this worker with the signal that ended the command, so that the pool counts one death for one job.
[[noreturn]] void end_like(int signal, const protocol::command_job& job, std::uint64_t number) {
  static_cast<void>(
      write_all(STDERR_FILENO, fmt::format("penstock: the command of job {} was killed by {}: {}\n", number,
                                           process::signal_name(signal), shown(job))));
  // Do not write another core file: the command has already written its own, if any.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(signal, SIG_DFL);  // our handler would print the worker's own stack
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  std::abort();
}

}  // namespace

void run_command(JobCall& call) {
  const auto job = protocol::command_job_from(call.argument());
  if (!job) throw job_exception("command", job.error().message, {});
  call.describe(shown(*job));
  static group_watchdog watchdog;
  if (const int trouble = watchdog.start(); trouble != 0) {
    throw job_exception(
        "command", os_failure(errc::system, trouble, "starting the process that watches commands").message,
        {});
  }
  group_watchdog::entry* const group = watchdog.claim();
  if (group == nullptr) {
    throw job_exception(
        "command",
        fmt::format("processes of {} earlier commands are still running; penstock cannot watch more",
                    group_watchdog::groups_max),
        {});
  }
  captured_output out(job->output_bytes_max);
  captured_output err(job->output_bytes_max);
  const auto begun = clock::now();
  const abort_notice notice;
  command_family family(watchdog);
  const process::child command = start_command(*job, out, err, *group);
  memory_limit memory(family, job->memory_bytes_max);
  const int status = status_of(command, out, err, memory, family, watchdog, notice);
  if (notice.has_come()) {
    family.kill();
    notice.follow();
  }
  if (memory.exceeded() > 0) {
    group_watchdog::release(*group);
    throw job_exception(
        "memory",
        fmt::format("the command used {} of memory; the limit is {}", bytes_for_people(memory.exceeded()),
                    bytes_for_people(job->memory_bytes_max)),
        {});
  }
  if (WIFSIGNALED(status)) {
    family.kill();
    end_like(WTERMSIG(status), *job, call.job());
  }
  group_watchdog::release(*group);
  const std::chrono::nanoseconds took = clock::now() - begun;
  call.give(protocol::as_bytes(protocol::command_outcome{WEXITSTATUS(status), out.finish(), err.finish(),
                                                         static_cast<std::uint64_t>(took.count())}));
}

}  // namespace penstock::job_worker
