#include "runtime/process/fault_injection.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

using namespace penstock::process;

TEST_CASE("a child's end by an injected signal is recognised once, and any other end is not") {
  const auto child_that_waits = [] {
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) ::pause();
    }
    return child;
  };
  const auto end_by = [](int number) { return exit_report{-1, exit_report::how::signalled, number, {}}; };
  const auto kill_and_reap = [](pid_t child) {
    ::kill(child, SIGKILL);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
  };
  const pid_t child = child_that_waits();
  REQUIRE(child > 0);
  CHECK_FALSE(was_injected(child, end_by(SIGKILL)));
  REQUIRE(signal_child(child, SIGSTOP));
  CHECK_FALSE(was_injected(child, end_by(SIGKILL)));
  REQUIRE(signal_child(child, SIGKILL));
  CHECK(was_injected(child, end_by(SIGKILL)));
  CHECK_FALSE(was_injected(child, end_by(SIGKILL)));
  kill_and_reap(child);
  CHECK_FALSE(signal_child(child, SIGKILL));
  CHECK_FALSE(was_injected(child, end_by(SIGKILL)));
}
