#include "runtime/process/spawn.hpp"

#include "runtime/base/exit_codes.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/cores.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/path_lookup.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

namespace penstock::process {
namespace {

// child_main has no buffers and does not recurse, so one page is plenty. The other pages are for
// instrumentation (sanitizers). Only pages that are touched cost memory.
constexpr std::size_t child_stack_pages = 16;
constexpr std::size_t child_stack_bytes = child_stack_pages * 4096;

/// What the child needs between clone and exec, prepared in advance: until exec, the child runs in our
/// memory, where other threads may hold any lock, so it may neither allocate nor lock.
struct launch {
  const char* program = nullptr;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::vector<inherited_fd> fds;
  std::optional<cpu_set_t> cores;
  int highest_target = 2;
  pid_t parent = 0;
  const std::atomic<bool>* given_up = nullptr;
  const char* failed_step = nullptr;  // written by the child, read by us after it is gone
  int failed_errno = 0;
};

[[noreturn]] void give_up(launch& l, const char* step) {
  l.failed_step = step;
  l.failed_errno = errno;
  ::_exit(exit_codes::not_executed);
}

int child_main(void* argument) {
  launch& l = *static_cast<launch*>(argument);

  if (::setpgid(0, 0) != 0) give_up(l, "setpgid");
  if (::prctl(PR_SET_PDEATHSIG, SIGHUP) != 0) give_up(l, "prctl(PR_SET_PDEATHSIG)");
  // The parent may have died before the prctl call, which then has no effect.
  if (::getppid() != l.parent) ::_exit(exit_codes::not_executed);

  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int s = 1; s < NSIG; ++s)
    ::sigaction(s, &standard, nullptr);  // fails for SIGKILL and SIGSTOP, as expected

  // Move the descriptors out of the way first, because a source may have the number of a target.
  for (inherited_fd& fd : l.fds) {
    fd.ours = ::fcntl(fd.ours, F_DUPFD, l.highest_target + 1);
    if (fd.ours < 0) give_up(l, "duplicating an inherited descriptor");
  }
  bool has_stdin = false;
  for (const inherited_fd& fd : l.fds) {
    if (::dup2(fd.ours, fd.theirs) < 0) give_up(l, "placing an inherited descriptor");
    has_stdin |= fd.theirs == 0;
  }
  if (!has_stdin) {
    const int null = ::open("/dev/null", O_RDWR);
    if (null < 0 || ::dup2(null, 0) < 0) give_up(l, "opening /dev/null");
  }
  // The embedding program's descriptors may lack close-on-exec, but none of them may stay open in a worker.
  if (::syscall(__NR_close_range, static_cast<unsigned>(l.highest_target + 1), ~0U, 0U) != 0) {
    give_up(l, "close_range");
  }

  if (l.cores && ::sched_setaffinity(0, sizeof *l.cores, &*l.cores) != 0) give_up(l, "sched_setaffinity");

  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // A start_control::give_up() before this line may have found no process to kill; a later
  // call finds this process.
  if (l.given_up->load()) ::_exit(exit_codes::not_executed);
  ::execve(l.program, l.argv.data(), l.envp.data());
  give_up(l, "execve");
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  list.reserve(strings.size() + 1);
  for (const std::string& s : strings) list.push_back(const_cast<char*>(s.c_str()));
  list.push_back(nullptr);
  return list;
}

std::vector<std::filesystem::path> own_folders() {
  std::vector<std::filesystem::path> folders;
  if (const char* named = std::getenv("PENSTOCK_LIBEXEC"); named != nullptr && *named != '\0')
    folders.emplace_back(named);
  std::error_code ignored;
  const auto add = [&](const std::filesystem::path& file) {
    const auto folder = file.parent_path();
    if (folder.empty() || std::ranges::find(folders, folder) != folders.end()) return;  // program and library may be one file
    folders.push_back(folder);
    folders.push_back(folder.parent_path() / "libexec" / "penstock");
  };
  add(std::filesystem::read_symlink("/proc/self/exe", ignored));
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&find_program), &here) != 0 && here.dli_fname != nullptr) {
    add(std::filesystem::canonical(here.dli_fname, ignored));
  }
  return folders;
}

}  // namespace

void start_control::give_up() {
  const std::lock_guard hold(mutex_);
  given_up_ = true;
  if (const int pidfd = pidfd_; pidfd >= 0) ::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0U);
}

result<child> spawn(const spawn_request& request, start_control* control) {
  start_control uncontrolled;
  start_control& controlled = control != nullptr ? *control : uncontrolled;
  launch l;
  l.given_up = &controlled.given_up_;
  l.program = request.program.c_str();
  std::vector<std::string> words{request.name.empty() ? request.program : request.name};
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  l.argv = pointers(words);
  l.envp = pointers(request.environment);
  l.fds = request.fds;
  l.parent = ::getpid();
  if (!request.cores.empty()) l.cores = set_of(request.cores);
  for (const inherited_fd& fd : l.fds) l.highest_target = std::max(l.highest_target, fd.theirs);

  const mapping stack = map_anonymous(child_stack_bytes);
  if (!stack) return refuse_os(errc::system, errno, "allocating a stack to start a process");

  // No handler of ours may run in the child while it shares our memory.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  static_assert(sizeof(controlled.pidfd_) == sizeof(int) && std::atomic<int>::is_always_lock_free);
  static_assert(sizeof(std::atomic<pid_t>) == sizeof(pid_t));
  const int announced = request.announce != nullptr ? CLONE_CHILD_SETTID : 0;
  const pid_t pid = ::clone(child_main, stack.bytes().data() + child_stack_bytes,
                            CLONE_VM | CLONE_VFORK | CLONE_PIDFD | announced | SIGCHLD, &l,
                            reinterpret_cast<int*>(&controlled.pidfd_), nullptr,
                            reinterpret_cast<pid_t*>(request.announce));
  const int clone_errno = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  // Take the descriptor from give_up(): the code below or the child's owner closes it.
  std::unique_lock hold(controlled.mutex_);
  child started{pid, unique_fd(controlled.pidfd_.exchange(-1))};
  const bool given_up = controlled.given_up_;
  hold.unlock();
  if (pid < 0)
    return refuse_os(errc::system, clone_errno, fmt::format("starting '{}'", printable(request.program)));
  if (given_up) {
    signal_group(started, SIGKILL);
    reap(started, std::chrono::seconds(1));
    return refuse(errc::system, "executing '{}' did not return: giving up on it", printable(request.program));
  }
  if (l.failed_step != nullptr) {
    reap(started, std::chrono::seconds(1));
    const bool program = std::strcmp(l.failed_step, "execve") == 0;
    return refuse_os(program ? errc::worker_program : errc::system, l.failed_errno,
                     program ? fmt::format("executing '{}'", printable(request.program))
                             : fmt::format("starting '{}': {}", printable(request.program), l.failed_step));
  }
  return started;
}

result<std::string> find_program(const std::string& name) {
  if (name.empty()) return refuse(errc::worker_program, "the name of the program is empty");
  if (name.find('/') != std::string::npos) {
    if (is_executable_file(name)) return name;
    struct stat facts {};
    if (::stat(name.c_str(), &facts) != 0) {
      return refuse_os(errc::worker_program, errno, fmt::format("program '{}'", printable(name)));
    }
    return refuse(errc::worker_program, "program '{}' is not an executable file", printable(name));
  }
  std::string looked_in;
  for (const auto& folder : own_folders()) {
    if (is_executable_file(folder / name)) return (folder / name).string();
    looked_in += folder.string() + ", ";
  }
  if (const char* path = std::getenv("PATH"); path != nullptr && *path != '\0') {
    if (auto file = found_in_path(path, name)) return std::move(*file);
  }
  return refuse(errc::worker_program, "program '{}' was not found; looked in {}and PATH", printable(name),
                looked_in);
}

}  // namespace penstock::process
