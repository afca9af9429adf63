// A child process that only starts up and exits, as its first argument says.
#include "actors/child/child.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

using namespace penstock;

namespace {

/// Prints which of the session's descriptors are inherited by a program that this one starts.
[[noreturn]] void start_a_program() {
  ::execl("/bin/sh", "sh", "-c",
          "for fd in 3 4 5 6 7; do [ ! -e /proc/self/fd/$fd ] || echo $fd; done; echo end", nullptr);
  ::_exit(exit_codes::not_executed);
}

/// Sends heartbeats on page 1, even if another page is assigned later, until the session ends.
[[noreturn]] void live() {
  child::heartbeat heartbeat;
  heartbeat.adopt(1);
  heartbeat.adopt(0);
  std::puts("alive");
  std::fflush(stdout);
  while (true) ::pause();
}

[[noreturn]] void leave() {
  std::atexit([] { std::puts("a destructor"); });
  std::puts("not flushed");
  child::leave(7, [](std::function<void()> then) {
    std::thread([then = std::move(then)] {
      std::puts("sent");
      then();
    }).detach();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (!child::started_by_a_session("a child of the tests")) return exit_codes::configuration;
  if (what == "start-a-program") start_a_program();
  if (what == "live") live();
  if (what == "leave") leave();
  if (what == "leave-unheard") child::leave(8, [](const std::function<void()>&) {});
  return exit_codes::failed;
}
