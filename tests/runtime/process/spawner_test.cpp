// A program on a file system that does not respond, simulated by a file lease: executing the program blocks
// until the lease is released (or the kernel breaks it, /proc/sys/fs/lease-break-time seconds later).
#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"

#include <boost/asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

using namespace penstock;
using namespace penstock::process;
using namespace std::chrono_literals;

namespace {

class slow_program {
 public:
  slow_program() : before_(::signal(SIGIO, SIG_IGN)) {  // SIGIO is the kernel's request to release the lease
    std::string name = "/tmp/penstock-slow-XXXXXX";
    ::mkdtemp(name.data());
    folder_ = name;
    std::filesystem::copy_file("/bin/true", path());
    lease_ = unique_fd(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
    held_ = ::fcntl(lease_.get(), F_SETLEASE, F_WRLCK) == 0;
  }
  ~slow_program() {
    give_way();
    ::signal(SIGIO, before_);
    std::filesystem::remove_all(folder_);
  }
  slow_program(const slow_program&) = delete;
  slow_program& operator=(const slow_program&) = delete;

  [[nodiscard]] std::string path() const { return (folder_ / "program").string(); }
  [[nodiscard]] bool held() const { return held_; }
  /// Whether a process waits for the file.
  [[nodiscard]] bool awaited() const { return ::fcntl(lease_.get(), F_GETLEASE) != F_WRLCK; }
  void give_way() { ::fcntl(lease_.get(), F_SETLEASE, F_UNLCK); }

 private:
  std::filesystem::path folder_;
  unique_fd lease_;
  bool held_ = false;
  void (*before_)(int);
};

}  // namespace

TEST_CASE("the spawner starts programs by name and reports why it cannot") {
  std::promise<bool> started;
  std::promise<std::string> refused;
  spawner here;
  here.start({"true", {}, {}, {}},
             [&](result<unclaimed_child> made) { started.set_value(made.has_value()); });
  here.start({"/nonexistent/worker", {}, {}, {}},
             [&](result<unclaimed_child> made) { refused.set_value(made ? "" : made.error().message); });
  CHECK(started.get_future().get());
  CHECK(refused.get_future().get() == "program '/nonexistent/worker': No such file or directory");
  std::promise<errc> no_descriptor;
  here.start({"true", {}, {}, {{-1, 3}}}, [&](result<unclaimed_child> made) {
    no_descriptor.set_value(made ? errc::usage : made.error().code);
  });
  CHECK(no_descriptor.get_future().get() == errc::system);
}

TEST_CASE("an unclaimed child is killed and reaped") {
  pid_t pid = 0;
  {
    auto made = spawn({"/bin/sleep", {"1000"}, {}, {}});
    REQUIRE(made);
    pid = made->pid;
    const unclaimed_child child(std::move(*made));
  }
  CHECK(::kill(pid, 0) == -1);
}

TEST_CASE(
    "a start that does not return can be cancelled, and starts queued behind it fail when their turn comes") {
  slow_program program;
  if (!program.held()) {
    WARN("not tried: no lease on files of /tmp");
    return;
  }
  const auto words_of = [](std::promise<std::string>& words) {
    return
        [&words](result<unclaimed_child> made) { words.set_value(made ? "it runs" : made.error().message); };
  };
  spawner here;
  std::promise<std::string> first;
  std::promise<std::string> second;
  std::promise<std::string> third;
  const auto stuck = here.start({program.path(), {}, {}, {}}, words_of(first));
  const auto behind = here.start({"true", {}, {}, {}}, words_of(second));
  here.start({"true", {}, {}, {}}, words_of(third));
  // The kernel requests the lease when a process waits for the file.
  while (!program.awaited()) std::this_thread::yield();
  CHECK(here.current() == "executing '" + program.path() + "'");
  behind->give_up();
  stuck->give_up();
  CHECK(first.get_future().get() == "executing '" + program.path() + "' did not return: giving up on it");
  CHECK(second.get_future().get() == "starting 'true' was cancelled before its turn came");
  CHECK(third.get_future().get() == "it runs");
  behind->give_up();  // cancelling a second time is harmless
}

TEST_CASE("a program on an unresponsive file system delays neither signals nor the end of the session") {
  slow_program program;
  if (!program.held()) {
    WARN("not tried: no lease on files of /tmp");
    return;
  }
  std::promise<void> killed;
  std::unique_ptr<child_process> child;
  std::promise<void> running;
  std::optional<io_thread> io;
  io.emplace();
  boost::asio::post(io->context(), [&] {
    child_callbacks callbacks;
    callbacks.exited = [&](const exit_report&, const output_tail&) { killed.set_value(); };
    child = child_process::watch(io->context(), spawn({"/bin/sleep", {"1000"}, {}, {}}).value(), {},
                                 std::move(callbacks))
                .value();
    running.set_value();
  });
  running.get_future().wait();
  const auto outcome = std::make_shared<std::atomic<bool>>(false);
  io->spawner().start({program.path(), {}, {}, {}}, [outcome](result<unclaimed_child>) { *outcome = true; });
  boost::asio::post(io->context(), [&] { child->signal(SIGKILL); });
  CHECK(killed.get_future().wait_for(10s) == std::future_status::ready);
  CHECK_FALSE(*outcome);

  const auto begin = std::chrono::steady_clock::now();
  std::promise<void> dropped;
  boost::asio::post(io->context(), [&] {
    child.reset();
    dropped.set_value();
  });
  dropped.get_future().wait();
  io.reset();
  CHECK(std::chrono::steady_clock::now() - begin < 2 * side_thread::patience);
  CHECK_FALSE(*outcome);
  program.give_way();
}
