// How programs end when they are asked to stop once, twice and three times.
#include "runtime/base/fd.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/stop_requests.hpp"
#include "tools/penstock/stop_signals.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

using namespace penstock;
using namespace penstock::cli;
using namespace std::chrono_literals;

namespace {

constexpr steady_time start{1h};

struct ended_program {
  int code = -1;  // -1: a signal ended it
  std::string said;
};

/// Runs a program in a separate process.
ended_program ended(const std::function<int()>& program) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  unique_fd said(ends[0]);
  unique_fd stderr_of_program(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(stderr_of_program.get(), STDERR_FILENO);
    ::_exit(program());
  }
  stderr_of_program.reset();
  ended_program made;
  char part[4096];
  for (ssize_t read = 0; (read = ::read(said.get(), part, sizeof part)) > 0;) made.said.append(part, static_cast<std::size_t>(read));
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status)) made.code = WEXITSTATUS(status);
  return made;
}

/// Sends itself three requests, each when the one before it has been received and its time has passed. Returns when the
/// third has been received.
void ask_three_times(stop_signals& signals, int signal, stop_words said = {}) {
  auto heard = std::make_shared<std::promise<void>>();
  signals.listen(
      [signal, heard](int times) {
        if (times == 3) return heard->set_value();
        timespec rest{0, stop_requests::one_request.count()};
        ::nanosleep(&rest, nullptr);
        ::kill(::getpid(), signal);
      },
      std::move(said));
  ::kill(::getpid(), signal);
  heard->get_future().wait();
}

}  // namespace

TEST_CASE("signals within a tenth of a second are one request") {
  stop_requests requests;
  CHECK(requests.begun_by(SIGTERM, start) == 1);
  CHECK(requests.begun_by(SIGTERM, start) == 0);
  CHECK(requests.begun_by(SIGINT, start + 99ms) == 0);
  CHECK(requests.begun_by(SIGTERM, start + 100ms) == 2);
  CHECK(requests.begun_by(SIGTERM, start + 199ms) == 0);
  CHECK(requests.begun_by(SIGINT, start + 200ms) == 3);
}

TEST_CASE("a flood of signals does not delay the second request") {
  stop_requests requests;
  int begun = 0;
  for (auto now = start; now < start + 250ms; now += 2ms) begun = std::max(begun, requests.begun_by(SIGTERM, now));
  CHECK(begun == 3);
}

TEST_CASE("a hang-up is a first request only") {
  stop_requests requests;
  CHECK(requests.begun_by(SIGHUP, start) == 1);
  CHECK(requests.begun_by(SIGHUP, start + 1s) == 0);
  CHECK(requests.begun_by(SIGTERM, start + 2s) == 2);
  CHECK(requests.begun_by(SIGHUP, start + 3s) == 0);
}

TEST_CASE("a program that can still end does so after the third request, with its own exit code") {
  const ended_program program = ended([] {
    stop_signals signals;
    ask_three_times(signals, SIGTERM);
    return 7;
  });
  CHECK(program.code == 7);
  CHECK(program.said.find("gave up") == std::string::npos);
}

TEST_CASE("a program that cannot end after the third request is given up and says what it leaves behind") {
  for (const auto& [signal, code] : {std::pair{SIGINT, exit_interrupted}, std::pair{SIGTERM, exit_terminated}}) {
    const ended_program program = ended([signal = signal] {
      stop_signals signals(10ms);
      ask_three_times(signals, signal, {.left_behind = [] { return "half of it"; }});
      ::pause();
      return 0;
    });
    CHECK(program.code == code);
    CHECK(program.said.ends_with("gave up waiting for the end: half of it\n"));
  }
}

TEST_CASE("only after Ctrl-C does a program ask for another press") {
  for (const auto& [signal, line] : {std::pair{SIGINT, "stopping: workers finish their sample (press again to stop at once)\n"},
                                     std::pair{SIGTERM, "stopping: workers finish their sample (send SIGTERM again to stop at once)\n"}}) {
    const ended_program program = ended([signal = signal] {
      stop_signals signals;
      ask_three_times(signals, signal);
      return 0;
    });
    CHECK(program.said.starts_with(line));
  }
}

TEST_CASE("a program that no longer listens is given up after the third request, too") {
  const ended_program program = ended([] {
    stop_signals signals(10ms);
    signals.listen([](int) {});
    signals.ignore();
    for (;;) {
      ::kill(::getpid(), SIGTERM);
      const timespec rest{0, stop_requests::one_request.count()};
      ::nanosleep(&rest, nullptr);
    }
    return 0;
  });
  CHECK(program.code == exit_terminated);
}
