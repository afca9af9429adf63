#include "tools/penstock/stop_signals.hpp"

#include "runtime/base/exit_report.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/output.hpp"

#include <fmt/core.h>

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>

namespace penstock::cli {
namespace {

// Wakes the listening thread when the program ends normally.
constexpr int wake_signal = SIGUSR2;

/// nohup ignores SIGHUP for programs that should outlive a terminal; it then stays ignored.
bool hang_up_is_ignored() {
  struct sigaction now {};
  return ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

bool has_room(int fd) {
  pollfd room{fd, POLLOUT, 0};
  return ::poll(&room, 1, 0) > 0;
}

/// "SIGTERM from process 4711 (systemd)"; without the process if the kernel sent it, as for Ctrl-C.
std::string in_words(const siginfo_t& from) {
  const std::string name = process::signal_name(from.si_signo);
  if (from.si_code != SI_USER || from.si_pid <= 0 || from.si_pid == ::getpid()) return name;
  std::string program;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", from.si_pid)), program);
  return fmt::format("{} from process {}{}", name, from.si_pid, program.empty() ? "" : fmt::format(" ({})", printable(program)));
}

sigset_t watched() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  if (!hang_up_is_ignored()) ::sigaddset(&set, SIGHUP);
  ::sigaddset(&set, wake_signal);
  return set;
}

}  // namespace

stop_signals::stop_signals() {
  const sigset_t set = watched();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

stop_signals::~stop_signals() {
  if (!thread_.joinable()) return;
  over_ = true;
  ::pthread_kill(thread_.native_handle(), wake_signal);
  thread_.join();
}

void stop_signals::listen(std::function<void(int)> stop, std::string first_words) {
  thread_ = std::thread([this, stop = std::move(stop), words = std::move(first_words)] { run(stop, words); });
}

void stop_signals::ignore() {
  const std::lock_guard hold(calls_);
  ignored_ = true;
}

void stop_signals::run(const std::function<void(int)>& stop, const std::string& first_words) {
  const sigset_t set = watched();
  for (int times = 0;;) {
    siginfo_t from{};
    const int signal = ::sigwaitinfo(&set, &from);
    if (signal < 0 && errno == EINTR) continue;
    if (signal < 0 || over_) return;
    if (signal == wake_signal) continue;
    // One hang-up may be reported several times: with PR_SET_PDEATHSIG, whenever one of the parent's threads
    // exits. A second request comes only from people and their programs.
    if (signal == SIGHUP && times > 0) continue;
    // Workers notice our exit and exit too.
    if (++times >= 3) ::_exit(signal == SIGINT ? exit_interrupted : exit_terminated);
    const std::lock_guard hold(calls_);
    if (ignored_) continue;
    if (times == 1) received_ = signal;
    asked_by_ = in_words(from);
    stop(times);
    // The reader of stderr may have stopped reading, and this thread must still handle the next signal.
    if (has_room(STDERR_FILENO)) say(times == 1 ? first_words : "stopping at once");
  }
}

}  // namespace penstock::cli
