// Links between processes of one host: the kernel identifies them and reports that they have exited. A
// separate program, in which nothing else has loaded OpenSSL.
#include "runtime/net/sockets.hpp"
#include "tests/runtime/net/link_world.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <vector>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

/// Runs `what` in a child, which then exits. The child is killed at the end of the test at the latest.
class child {
 public:
  explicit child(const std::function<void()>& what) : pid_(::fork()) {
    if (pid_ != 0) return;
    what();
    ::_exit(0);
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  ::pid_t pid_;
};

constexpr ::uid_t nobody = 65534;

}  // namespace

TEST_CASE("links on one host load no OpenSSL, even with a secret") {
  boost::asio::io_context io;
  link_settings settings = link_settings_for(link_kind::local);
  settings.secret = group_secret{"a secret of the whole group"};
  test_coordinator coordinator(io, settings);
  test_member member(io, coordinator.for_members());
  run_until(io, [&] { return member.connected == 1; });
  CHECK(::dlopen("libssl.so.3", RTLD_NOW | RTLD_NOLOAD) == nullptr);
}

TEST_CASE(
    "the coordinator learns at once that a member's process has ended, and can tell that from a closed link") {
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(link_kind::local));
  const link_settings settings = coordinator.for_members();
  child other([&] {
    boost::asio::io_context its_io;
    const test_member member(its_io, settings);
    its_io.run_for(60s);
  });
  test_member here(io, settings);
  run_until(io, [&] { return coordinator.listener->links() == 2; });
  here.link->stop();
  run_until(io, [&] { return coordinator.closed.size() == 1; });
  const link_id closed = coordinator.closed.begin()->first;
  other.end();
  run_until(io, [&] { return !coordinator.ended.empty(); });
  CHECK(coordinator.closed.size() == 2);
  CHECK_FALSE(coordinator.ended.contains(closed));
}

TEST_CASE("a member learns at once that the coordinator's process has ended") {
  boost::asio::io_context io;
  const link_settings settings = link_settings_for(link_kind::local);
  child other([&] {
    boost::asio::io_context its_io;
    const test_coordinator coordinator(its_io, settings);
    its_io.run_for(60s);
  });
  test_member member(io, settings);
  run_until(io, [&] { return member.connected == 1; });
  other.end();
  run_until(io, [&] { return member.coordinator_ended == 1; });
  CHECK_FALSE(member.reasons.empty());
}

TEST_CASE("another user of the host can neither join nor pass for the coordinator") {
  if (::geteuid() != 0) SKIP("needs root, to become another user");
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(link_kind::local));
  const link_settings settings = coordinator.for_members();
  const link_settings taken = link_settings_for(link_kind::local);
  const child other([&] {
    if (::setresuid(nobody, nobody, nobody) != 0) return;
    boost::asio::io_context its_io;
    const test_member member(its_io, settings);
    const test_coordinator squatter(its_io, taken);
    its_io.run_for(60s);
  });
  run_until(io, [&] { return !coordinator.news.empty(); });
  CHECK(coordinator.news.at(0).kind == unknown_peer_kind::other_user);
  CHECK(coordinator.news.at(0).peer.find("of user 65534") != std::string::npos);
  CHECK(coordinator.listener->links() == 0);
  test_member member(io, taken);
  run_until(io, [&] {
    return !member.reasons.empty() && member.reasons.back().find("taken") != std::string::npos;
  });
  CHECK(member.reasons.back() ==
        fmt::format("the name @{} was taken by user 65534, but this process belongs to user 0",
                    taken.address.name));
  CHECK(member.connected == 0);
}

TEST_CASE(
    "a group whose name another user has taken meets at another address, whatever else that user occupies") {
  if (::geteuid() != 0) SKIP("needs root, to become another user");
  const link_settings settings = link_settings_for(link_kind::local);
  const bool listens = GENERATE(true, false);
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const child other([&] {
    if (::setresuid(nobody, nobody, nobody) != 0) return;
    constexpr int decoys = 300;
    std::vector<unique_fd> held;
    for (int i = 0; i <= decoys; ++i) {
      group_address at = settings.address;
      if (i > 0) at.name += fmt::format("/{:016x}", i);
      const socket_address name = *address_without_asking(at);
      unique_fd made(::socket(AF_UNIX, SOCK_STREAM, 0));
      if (::bind(made.get(), reinterpret_cast<const ::sockaddr*>(&name.bytes), name.size) != 0) return;
      if (listens && ::listen(made.get(), 4) != 0) return;
      held.push_back(std::move(made));
    }
    if (::write(ready[1], "x", 1) != 1) return;
    ::pause();
  });
  char one = 0;
  REQUIRE(::read(ready[0], &one, 1) == 1);
  boost::asio::io_context io;
  test_coordinator coordinator(io, settings);
  test_member member(io, settings);
  run_until(io, [&] { return member.connected == 1 && coordinator.listener->links() == 1; });
  // Another member finds this address, too.
  member.link->stop();
  test_member next(io, settings);
  run_until(io, [&] { return next.connected == 1; });
  for (const int end : ready) ::close(end);
}
