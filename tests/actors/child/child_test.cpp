// Startup and exit of a child process, tested with a program that does nothing else (tried_child.cpp).
#include "actors/child/child.hpp"

#include "actors/protocol/link.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/spawn.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

/// The parts of a session that a child can see.
class made_up_session {
 public:
  explicit made_up_session(bool with_link = true) {
    auto ends = protocol::make_link_pair().value();
    link_ = std::move(ends.first);
    childs_link_ = std::move(ends.second);
    std::array<int, 2> output{};
    REQUIRE(::pipe2(output.data(), O_CLOEXEC) == 0);
    output_ = unique_fd(output[0]);
    childs_output_ = unique_fd(output[1]);
    request_.program = PENSTOCK_TRIED_CHILD;
    request_.fds = {{childs_output_.get(), STDOUT_FILENO},
                    {childs_output_.get(), STDERR_FILENO},
                    {lifeline.read_end.get(), protocol::child_fd::lifeline},
                    {flights.fd(), protocol::child_fd::flight}};
    if (with_link) request_.fds.push_back({childs_link_.get(), protocol::child_fd::link});
  }

  void start(const char* what) {
    request_.arguments = {what};
    child = process::spawn(request_).value();
    childs_output_.reset();
  }
  std::string line() {
    std::string text;
    for (char c = 0; ::read(output_.get(), &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  process::exit_report end() {
    const auto report = process::reap(child, 10s);
    REQUIRE(report);
    return *report;
  }

  process::lifeline lifeline = process::lifeline::create().value();
  arena::flight_recorders flights = arena::flight_recorders::create(2).value();
  process::child child;

 private:
  process::spawn_request request_;
  unique_fd link_;
  unique_fd childs_link_;
  unique_fd output_;
  unique_fd childs_output_;
};

}  // namespace

TEST_CASE("a child program started by hand prints its purpose and exits with the configuration code") {
  made_up_session s(false);
  s.start("live");
  CHECK(s.line() == "This is a child of the tests. A penstock session starts it; see `penstock help run`.");
  CHECK(s.end().exited_with(exit_codes::configuration));
}

TEST_CASE("a program started by a child inherits none of the session's descriptors") {
  made_up_session s;
  s.start("start-a-program");
  CHECK(s.line() == "end");
}

TEST_CASE("a child reports heartbeats and its memory use on its first page only") {
  made_up_session s;
  s.start("live");
  REQUIRE(s.line() == "alive");
  pollfd gone{s.child.pidfd.get(), POLLIN, 0};
  while (s.flights.read(1).heartbeats < 3) REQUIRE(::poll(&gone, 1, 5) == 0);
  CHECK(s.flights.read(1).rss_bytes > 0);
  CHECK(s.flights.read(0).heartbeats == 0);
  s.lifeline.write_end.reset();
  CHECK(s.end().ended_by(SIGKILL));
}

TEST_CASE("a child exits once its last message is sent, keeps what it printed, and runs no destructors") {
  made_up_session s;
  s.start("leave");
  CHECK(s.line() == "not flushed");
  CHECK(s.line() == "sent");
  CHECK(s.line().empty());
  CHECK(s.end().exited_with(7));
}

TEST_CASE("a child exits even if its last message is never received") {
  made_up_session s;
  s.start("leave-unheard");
  CHECK(s.end().exited_with(8));
}
