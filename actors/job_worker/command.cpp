#include "actors/job_worker/command.hpp"

#include "actors/job_worker/abort_notice.hpp"
#include "actors/job_worker/command_family.hpp"
#include "actors/protocol/command_job.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/process/process_facts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace penstock::job_worker {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t shown_of_a_command = 200;
constexpr std::chrono::milliseconds memory_is_looked_at_every{50};
constexpr std::chrono::milliseconds orphans_are_looked_at_every{1000};

std::string shown(const protocol::command_job& job) {
  std::string line;
  for (const std::string& argument : job.arguments) line += (line.empty() ? "" : " ") + argument;
  return shortened(printable(line), shown_of_a_command);
}

[[noreturn]] void cannot(const protocol::command_job& job, const std::string& what, int trouble) {
  throw job_exception(
      "command", os_failure(errc::system, trouble, fmt::format("{} '{}'", what, shown(job))).message, {});
}

/// One of the command's outputs.
class captured {
 public:
  explicit captured(std::uint64_t most) : most_(most) {}

  /// Opens the pipe. Returns 0 or an errno.
  int open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
    read_.reset(ends[0]);
    write_.reset(ends[1]);
    return ::fcntl(read_.get(), F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
  }
  [[nodiscard]] int command_end() const { return write_.get(); }
  void close_command_end() { write_.reset(); }
  [[nodiscard]] int fd() const { return read_.get(); }

  /// Reads what is available. Output beyond the limit is read too, and dropped: the command must not block on
  /// a full pipe.
  void take() {
    std::array<char, 64 * 1024> piece;
    while (read_) {
      const ssize_t bytes = ::read(read_.get(), piece.data(), piece.size());
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0 && errno == EAGAIN) return;
      if (bytes <= 0) return read_.reset();
      const auto count = static_cast<std::uint64_t>(bytes);
      output.written += count;
      output.kept.append(piece.data(), std::min(count, most_ - output.kept.size()));
    }
  }

  protocol::command_output output;

 private:
  std::uint64_t most_;
  unique_fd read_;
  unique_fd write_;
};

class spawn_settings {
 public:
  spawn_settings() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
    sigset_t set;
    ::sigfillset(&set);
    ::posix_spawnattr_setsigdefault(&attributes, &set);
    ::sigemptyset(&set);
    ::posix_spawnattr_setsigmask(&attributes, &set);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~spawn_settings() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
  spawn_settings(const spawn_settings&) = delete;
  spawn_settings& operator=(const spawn_settings&) = delete;

  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};
};

pid_t start(const protocol::command_job& job, captured& out, captured& err) {
  if (const int trouble = out.open(); trouble != 0) cannot(job, "making a pipe for", trouble);
  if (const int trouble = err.open(); trouble != 0) cannot(job, "making a pipe for", trouble);
  spawn_settings how;
  ::posix_spawn_file_actions_addopen(&how.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&how.files, out.command_end(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&how.files, err.command_end(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : job.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int trouble =
      ::posix_spawnp(&pid, arguments.front(), &how.files, &how.attributes, arguments.data(), environ);
  if (trouble == ENOENT && job.arguments.front().find('/') == std::string::npos) {
    throw job_exception(
        "command", fmt::format("there is no program '{}' in PATH", printable(job.arguments.front())), {});
  }
  if (trouble != 0) cannot(job, "executing", trouble);
  out.close_command_end();
  err.close_command_end();
  return pid;
}

/// The private memory of a command and all processes that it started.
class memory_limit {
 public:
  memory_limit(const command_family& family, std::uint64_t most) : family_(family), most_(most) {}

  [[nodiscard]] bool exists() const { return most_ > 0; }
  /// Kills them all if they exceed the limit. Looks no more often than memory_is_looked_at_every.
  void enforce() {
    if (most_ == 0 || clock::now() < next_look_) return;
    next_look_ = clock::now() + memory_is_looked_at_every;
    const std::uint64_t now = private_bytes();
    if (now <= most_) return;
    exceeded_ = now;
    family_.kill();
  }
  /// Its memory when it was killed; 0: it was not killed.
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
/// open. Returns early if the worker is to die.
int status_of(pid_t pid, captured& out, captured& err, memory_limit& memory, command_family& family,
              const abort_notice& notice) {
  const auto patience = memory.exists() ? memory_is_looked_at_every : orphans_are_looked_at_every;
  const unique_fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  bool over = !process;
  while (!over) {
    std::array<pollfd, 4> news{
        {{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}, {process.get(), POLLIN, 0}, {notice.fd(), POLLIN, 0}}};
    const int ready = ::poll(news.data(), news.size(), static_cast<int>(patience.count()));
    if (notice.has_come()) return 0;
    memory.enforce();
    family.reap_orphans(pid);
    if (ready <= 0) continue;
    over = news[2].revents != 0;
    if (news[0].revents != 0) out.take();
    if (news[1].revents != 0) err.take();
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  out.take();
  err.take();
  return status;
}

/// Ends this worker with the signal that ended the command, so that the pool counts one death for one job.
[[noreturn]] void end_like(int signal, const protocol::command_job& job, std::uint64_t number) {
  static_cast<void>(
      write_all(STDERR_FILENO, fmt::format("penstock: the command of job {} was ended by {}: {}\n", number,
                                           process::signal_name(signal), shown(job))));
  // The command has already written its core file, if any.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(signal, SIG_DFL);  // our handler would write the worker's own stack
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
  captured out(job->output_bytes_max);
  captured err(job->output_bytes_max);
  const auto begun = clock::now();
  const abort_notice notice;
  command_family family;
  const pid_t pid = start(*job, out, err);
  memory_limit memory(family, job->memory_bytes_max);
  const int status = status_of(pid, out, err, memory, family, notice);
  if (notice.has_come()) {
    family.kill();
    notice.obey();
  }
  if (memory.exceeded() > 0) {
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
  const std::chrono::nanoseconds took = clock::now() - begun;
  call.give(protocol::as_bytes(protocol::command_outcome{WEXITSTATUS(status), std::move(out.output),
                                                         std::move(err.output),
                                                         static_cast<std::uint64_t>(took.count())}));
}

}  // namespace penstock::job_worker
