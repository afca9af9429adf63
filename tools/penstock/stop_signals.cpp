#include "tools/penstock/stop_signals.hpp"

#include "tools/penstock/output.hpp"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>

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
    int signal = 0;
    if (::sigwait(&set, &signal) != 0) return;
    if (over_) return;
    if (signal == wake_signal) continue;
    // One hang-up may be reported several times: with PR_SET_PDEATHSIG, whenever one of the parent's threads
    // exits. A second request comes only from people and their programs.
    if (signal == SIGHUP && times > 0) continue;
    // Workers notice our exit and exit too.
    if (++times >= 3) ::_exit(signal == SIGINT ? exit_interrupted : exit_terminated);
    const std::lock_guard hold(calls_);
    if (ignored_) continue;
    if (times == 1) received_ = signal;
    stop(times);
    // The reader of stderr may have stopped reading, and this thread must still handle the next signal.
    if (has_room(STDERR_FILENO)) say(times == 1 ? first_words : "stopping at once");
  }
}

}  // namespace penstock::cli
