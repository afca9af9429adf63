// A child like penstock's own: guarded by the lifeline (descriptor 3), prints "ready" and waits. With an argument it first starts a program
// in the same group, as user code in a worker might: "with-grandchild", which sleeps; "with-large-grandchild", which owns descriptor 4 and
// has so much memory that its exit takes long.
#include "runtime/process/lifeline.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

void be_large() {
  constexpr std::size_t bytes = std::size_t{400} << 20U;  // freeing the pages takes some 40 ms
  void* memory = std::malloc(bytes);
  if (memory == nullptr) ::_exit(1);
  std::memset(memory, 1, bytes);
  asm volatile("" : : "r"(memory) : "memory");  // keeps the compiler from removing the write
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "with-large-grandchild") {
    if (::fork() == 0) be_large();
    ::close(4);
    while (true) ::pause();
  }
  const penstock::process::lifeline_guard guard(3, std::chrono::milliseconds(50), [] {});
  if (what == "with-grandchild" && ::fork() == 0) {
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(127);
  }
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}
