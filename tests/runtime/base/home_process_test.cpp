#include "runtime/base/home_process.hpp"

#include <penstock/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

using namespace penstock;

namespace {

/// Runs `is_so` in the child that `make_child` makes.
bool in_child(const std::function<bool()>& is_so, const std::function<pid_t()>& make_child) {
  const pid_t child = make_child();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(is_so() ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool in_forked_child(const std::function<bool()>& is_so) {
  return in_child(is_so, [] { return ::fork(); });
}

}  // namespace

TEST_CASE("an object is at home in the process that made it") {
  const home_process here;
  CHECK_FALSE(here.left());
  CHECK_NOTHROW(here.require("pool"));
}

TEST_CASE("a forked child has left the home of what it inherited, and is told the process") {
  const home_process here;
  const auto refused = [&] {
    try {
      here.require("pool");
    } catch (const error& e) {
      return e.code() == errc::usage &&
             std::string(e.what()).find("this pool belongs to process " + std::to_string(::getppid())) != std::string::npos;
    }
    return false;
  };
  CHECK(in_forked_child([&] { return here.left() && refused(); }));
  CHECK_FALSE(here.left());
}

TEST_CASE("a child made by the clone system call has left, too") {
  const home_process here;
  CHECK(in_child([&] { return here.left(); }, [] { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }));
}

TEST_CASE("what a forked child makes is at home in the child, and what it inherited still is not") {
  const home_process inherited;
  CHECK(in_forked_child([&] {
    const home_process own;
    const bool grandchild_has_left_both = in_forked_child([&] { return own.left() && inherited.left(); });
    return !own.left() && inherited.left() && grandchild_has_left_both;
  }));
}
