#include "runtime/device/exclusive_use.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

using namespace penstock;
using device::exclusive_use;

namespace {

// A made-up GPU name, different in each test process.
std::string some_gpu(const char* which) {
  return "GPU-test-" + std::to_string(::getpid()) + "-" + which;
}

}  // namespace

TEST_CASE("a GPU belongs to one session at a time, and the refusal names its holder") {
  auto first = exclusive_use::take(some_gpu("a"), "first");
  REQUIRE(first);
  const auto second = exclusive_use::take(some_gpu("a"), "second");
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::device_busy);
  CHECK(second.error().message.find("pid " + std::to_string(::getpid())) != std::string::npos);
  CHECK(second.error().message.find("in use by 'first', an earlier session or pool of this process") !=
        std::string::npos);
  CHECK(exclusive_use::take(some_gpu("b"), "second"));
}

TEST_CASE("a GPU is free again when its session releases it, however often this is repeated") {
  for (int i = 0; i < 3; ++i) {
    const auto held = exclusive_use::take(some_gpu("c"), "some");
    REQUIRE(held);
    for (int asked = 0; asked < 5; ++asked) CHECK_FALSE(exclusive_use::take(some_gpu("c"), "some"));
  }
}

TEST_CASE("a GPU is free again when its session is killed") {
  const std::string gpu = some_gpu("d");
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = exclusive_use::take(gpu, "some");
    const char told = held ? 'y' : 'n';
    if (::write(ready[1], &told, 1) == 1) ::pause();
    ::_exit(0);
  }
  char told = 0;
  REQUIRE(::read(ready[0], &told, 1) == 1);
  CHECK(told == 'y');
  const auto refused = exclusive_use::take(gpu, "some");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("another penstock session (pid " + std::to_string(child) + ")") !=
        std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(exclusive_use::take(gpu, "some"));
  ::close(ready[0]);
  ::close(ready[1]);
}
