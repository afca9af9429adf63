// Asio may report one descriptor's event for another one; that must not make a child count as dead.
#include "runtime/process/child_process.hpp"
#include "runtime/process/spawn.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>

using namespace penstock;
using namespace penstock::process;

TEST_CASE(
    "an event of a closed descriptor that is reported for a child's descriptor does not count as its death") {
  boost::asio::io_context io;
  // A pipe whose events the kernel still delivers after Asio has released it: they reach the entry in Asio that the child's descriptor gets
  // next. An event queued at that moment takes the same path, but a test cannot produce one at will.
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const unique_fd write(ends[1]);
  const unique_fd elsewhere(::fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
  bool aborted = false;
  {
    boost::asio::posix::stream_descriptor closed(io, ends[0]);
    closed.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [&](const boost::system::error_code& status) { aborted = bool(status); });
    io.poll();
    REQUIRE(::close(ends[0]) == 0);
  }
  io.restart();
  io.poll();
  REQUIRE(aborted);
  io.restart();

  std::optional<exit_report> report;
  child_callbacks callbacks;
  callbacks.exited = [&](const exit_report& how, const output_tail&) { report = how; };
  auto started = spawn({"/bin/sleep", {"1000"}, {"PATH=/bin:/usr/bin"}, {}}).value();
  const pid_t pid = started.pid;
  const auto child = child_process::watch(io, std::move(started), {}, std::move(callbacks)).value();
  REQUIRE(::write(write.get(), "x", 1) == 1);
  for (int turn = 0; turn < 20; ++turn) {
    io.poll();
    io.restart();
  }
  CHECK_FALSE(report);
  siginfo_t end{};
  CHECK(::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0);
  CHECK(end.si_pid == 0);  // the child is alive

  ::kill(pid, SIGTERM);
  while (!report) io.run_one();
  CHECK(report->ending == exit_report::how::signalled);
  CHECK(report->code == SIGTERM);
}
