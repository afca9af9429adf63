#include "tools/penstock/stop_signals.hpp"

#include "runtime/base/exit_report.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/stop_requests.hpp"

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

constexpr int last_request = 3;

/// nohup ignores SIGHUP for programs that should outlive a terminal; it then stays ignored.
bool hang_up_is_ignored() {
  struct sigaction now {};
  return ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

/// Never waits: even if nothing reads stderr, the listening thread must handle the next signal.
void say_if_read(const std::string& line) {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&room, 1, 0) > 0) say(line);
}

/// "SIGTERM from process 4711 (systemd)"; without the process if the kernel sent it, as for Ctrl-C.
std::string in_words(const siginfo_t& from) {
  const std::string name = process::signal_name(from.si_signo);
  if (from.si_code != SI_USER || from.si_pid <= 0 || from.si_pid == ::getpid()) return name;
  return fmt::format("{} from {}", name, process_in_words(from.si_pid));
}

/// "stopping (press again to stop at once)": presses are for Ctrl-C, and other signals are sent.
std::string first_words(const stop_words& said, int signal) {
  if (said.again.empty()) return said.first;
  // A hang-up is a first request only.
  const std::string how = signal == SIGINT ? "press again" : signal == SIGTERM ? "send SIGTERM again" : "send SIGTERM";
  return fmt::format("{} ({} to {})", said.first, how, said.again);
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

std::string process_in_words(pid_t pid) {
  std::string program;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), program);
  return fmt::format("process {}{}", pid, program.empty() ? "" : fmt::format(" ({})", printable(program)));
}

stop_signals::stop_signals(std::chrono::milliseconds patience) : patience_(patience) {
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

void stop_signals::listen(std::function<void(int)> stop, stop_words said) {
  thread_ = std::thread([this, stop = std::move(stop), said = std::move(said)] { run(stop, said); });
}

void stop_signals::ignore() {
  const std::lock_guard hold(calls_);
  ignored_ = true;
}

void stop_signals::run(const std::function<void(int)>& stop, const stop_words& said) {
  const sigset_t set = watched();
  stop_requests requests;
  for (;;) {
    siginfo_t from{};
    const int signal = ::sigwaitinfo(&set, &from);
    if (signal < 0 && errno == EINTR) continue;
    if (signal < 0 || over_) return;
    if (signal == wake_signal) continue;
    const int times = requests.begun_by(signal, std::chrono::steady_clock::now());
    if (times == 0) continue;
    {
      const std::lock_guard hold(calls_);
      if (!ignored_) {
        if (times == 1) received_ = signal;
        asked_by_ = in_words(from);
        stop(times);
        if (times < last_request) say_if_read(times == 1 ? first_words(said, signal) : "stopping at once");
      }
    }
    if (times < last_request) continue;
    wait_for_the_end();
    if (over_) return;
    say_if_read(said.left_behind ? "gave up waiting for the end: " + said.left_behind() : "gave up waiting for the end");
    // Workers notice our exit and exit too.
    ::_exit(signal == SIGINT ? exit_interrupted : exit_terminated);
  }
}

void stop_signals::wait_for_the_end() const {
  sigset_t wake;
  ::sigemptyset(&wake);
  ::sigaddset(&wake, wake_signal);
  const auto end = std::chrono::steady_clock::now() + patience_;
  while (!over_) {
    const auto left = std::chrono::nanoseconds(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return;
    const timespec rest{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    ::sigtimedwait(&wake, nullptr, &rest);
  }
}

}  // namespace penstock::cli
