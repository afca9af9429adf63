// A child as penstock's own: guarded by the lifeline (descriptor 3), says "ready" and waits. With an argument
// it first starts a program of its own in the same group, as user code in a worker might.
#include "runtime/process/lifeline.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

int main(int argc, char**) {
  const penstock::process::lifeline_guard guard(3, std::chrono::milliseconds(50), [] {});
  if (argc > 1 && ::fork() == 0) {
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(127);
  }
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}
