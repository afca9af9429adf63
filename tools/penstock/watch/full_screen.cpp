#include "tools/penstock/watch/full_screen.hpp"

#include "runtime/base/write_all.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

namespace penstock::cli {
namespace {

constexpr std::string_view enter = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view leave = "\x1b[0m\x1b[?25h\x1b[?1049l";

void draw(std::string_view text) {
  static_cast<void>(write_all(STDOUT_FILENO, text));
}

void give_back(const termios& before) {
  draw(leave);
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
}

sigset_t signals_of_interest() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) sigaddset(&set, s);
  return set;
}

/// The guard process: sleeps until the other end of the pipe closes. A byte on the pipe means a normal exit.
[[noreturn]] void guard(int lifeline, const termios& before) {
  // The shell may already have taken the terminal back, and signals to the program are not for us.
  for (const int s : {SIGTTOU, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(s, SIG_IGN);
  char word = 0;
  ssize_t bytes = 0;
  do bytes = ::read(lifeline, &word, 1);
  while (bytes < 0 && errno == EINTR);
  if (bytes == 0) give_back(before);
  ::_exit(0);
}

}  // namespace

result<full_screen> full_screen::take() {
  full_screen screen;
  if (::tcgetattr(STDIN_FILENO, &screen.before_) != 0)
    return refuse_os(errc::system, errno, "reading the terminal's settings");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return refuse_os(errc::system, errno, "making a pipe");
  unique_fd read_end(ends[0]);
  screen.lifeline_ = unique_fd(ends[1]);
  screen.guard_ = ::fork();
  if (screen.guard_ < 0)
    return refuse_os(errc::system, errno, "starting the process that restores the terminal");
  if (screen.guard_ == 0) {
    screen.lifeline_ = unique_fd();
    guard(read_end.get(), screen.before_);
  }
  const sigset_t set = signals_of_interest();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  screen.signals_ = unique_fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  termios raw = screen.before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  draw(enter);
  return screen;
}

full_screen::full_screen(full_screen&& other) noexcept
    : before_(other.before_),
      signals_(std::move(other.signals_)),
      lifeline_(std::move(other.lifeline_)),
      guard_(std::exchange(other.guard_, -1)) {}

full_screen::~full_screen() {
  if (guard_ <= 0) return;
  give_back(before_);
  const char word = 'k';
  static_cast<void>(::write(lifeline_.get(), &word, 1));
  ::waitpid(guard_, nullptr, 0);
}

screen_size full_screen::size() const {
  winsize now{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) == 0 && now.ws_col > 0 && now.ws_row > 0)
    return {now.ws_col, now.ws_row};
  return {};
}

void full_screen::show(const std::vector<std::string>& lines) {
  // Use one write and clear the rest of each line, to avoid flicker. No line feed after the last line: it
  // would scroll.
  std::string text = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += lines[i] + "\x1b[K";
    if (i + 1 < lines.size()) text += "\r\n";
  }
  draw(text + "\x1b[J");
}

full_screen::input full_screen::wait(std::chrono::milliseconds longest) {
  pollfd two[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  if (::poll(two, 2, static_cast<int>(longest.count())) <= 0) return {};
  input got;
  signalfd_siginfo info{};
  if ((two[1].revents & POLLIN) != 0 && ::read(signals_.get(), &info, sizeof info) == sizeof info)
    got.signal = static_cast<int>(info.ssi_signo);
  if ((two[0].revents & POLLIN) != 0 && ::read(STDIN_FILENO, &got.key, 1) != 1) got.key = 0;
  if ((two[0].revents & (POLLHUP | POLLERR)) != 0) got.closed = true;
  return got;
}

}  // namespace penstock::cli
