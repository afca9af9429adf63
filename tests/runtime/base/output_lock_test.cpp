#include "runtime/base/output_lock.hpp"

#include "tests/runtime/base/scratch_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace penstock;
using namespace penstock::testing;
namespace fs = std::filesystem;

namespace {

/// A process that has locked a file, and waits to be killed.
pid_t process_with_lock(const std::string& path) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto lock = output_lock::of_file(path, "the state");
    const char told = lock ? 'y' : 'n';
    static_cast<void>(!::write(ready[1], &told, 1));
    while (true) ::pause();
  }
  char told = 0;
  REQUIRE(::read(ready[0], &told, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  REQUIRE(told == 'y');
  return pid;
}

}  // namespace

TEST_CASE("an output is refused while another run uses it, and available again afterwards") {
  const scratch_folder folder;
  const std::string path = folder.file("photos.state");
  {
    const auto first = output_lock::of_file(path, "the state 'photos.state'");
    REQUIRE(first);
    const auto second = output_lock::of_file(path, "the state 'photos.state'");
    REQUIRE_FALSE(second);
    CHECK(second.error().code == errc::io);
    CHECK(second.error().message.find("is writing the state 'photos.state'") != std::string::npos);
    CHECK(second.error().message.find("choose another path") != std::string::npos);
    CHECK(output_lock::of_file(folder.file("other.state"), "the state"));
  }
  CHECK(fs::is_empty(folder.path()));
  CHECK(output_lock::of_file(path, "the state"));
}

TEST_CASE("a file that was replaced by a rename is still locked, even under the name of a link to it") {
  const scratch_folder folder;
  const std::string path = folder.file("state");
  std::ofstream(path) << "old";
  fs::create_symlink("state", folder.file("link"));
  const auto lock = output_lock::of_file(path, "the state");
  REQUIRE(lock);
  std::ofstream(folder.file("new")) << "new";
  fs::rename(folder.file("new"), path);
  CHECK_FALSE(output_lock::of_file(path, "the state"));
  CHECK_FALSE(output_lock::of_file(folder.file("link"), "the state"));
}

TEST_CASE("the lock of a killed process is free, and the lock file it leaves behind is reused") {
  const scratch_folder folder;
  const std::string path = folder.file("state");
  const pid_t pid = process_with_lock(path);
  const auto refused = output_lock::of_file(path, "the state");
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  REQUIRE_FALSE(refused);
  INFO(refused.error().message);
  CHECK(refused.error().message.find(fmt::format("another run is writing the state (pid {}):", pid)) == 0);
  CHECK(fs::exists(path + ".penstock-lock"));
  { CHECK(output_lock::of_file(path, "the state")); }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a lock that was moved is held once, until its last holder is destroyed") {
  const scratch_folder folder;
  output_lock kept;
  {
    auto lock = output_lock::of_file(folder.file("a"), "the state");
    REQUIRE(lock);
    kept = std::move(*lock);
  }
  CHECK_FALSE(output_lock::of_file(folder.file("a"), "the state"));
  kept = output_lock();
  CHECK(output_lock::of_file(folder.file("a"), "the state"));
}

TEST_CASE("a folder is locked by one run at a time, and no file is left in it") {
  const scratch_folder folder;
  const auto lock = output_lock::of_folder(folder.path(), "the folder");
  REQUIRE(lock);
  CHECK_FALSE(output_lock::of_folder(folder.path(), "the folder"));
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a device, a pipe or a missing folder is neither locked nor refused") {
  const auto first = output_lock::of_file("/dev/null", "the journal");
  CHECK(first);
  CHECK(output_lock::of_file("/dev/null", "the journal"));
  CHECK_FALSE(fs::exists("/dev/null.penstock-lock"));
  CHECK(output_lock::of_file("/no/such/folder/state", "the state"));
  CHECK(output_lock::of_folder("/no/such/folder", "the folder"));
}

TEST_CASE("the holder of a lock is read from the kernel's list and not confused with waiting processes") {
  const std::string locks =
      "1: FLOCK  ADVISORY  WRITE 6238 fe:00:10985080 0 EOF\n"
      "2: FLOCK  ADVISORY  WRITE 14993 fe:00:10979923 0 EOF\n"
      "2: -> FLOCK  ADVISORY  WRITE 77 fe:00:1 0 EOF\n"
      "3: FLOCK  ADVISORY  WRITE 0 00:2f:5 0 EOF\n";
  CHECK(lock_holder_in(locks, {0xfe, 0, 10979923}) == 14993);
  CHECK_FALSE(lock_holder_in(locks, {0xfe, 0, 1}));
  CHECK_FALSE(lock_holder_in(locks, {0, 0x2f, 5}));  // a process in another pid namespace
  CHECK_FALSE(lock_holder_in(locks, {0xfe, 0, 1097992}));
  CHECK_FALSE(lock_holder_in("", {0xfe, 0, 10979923}));
}
