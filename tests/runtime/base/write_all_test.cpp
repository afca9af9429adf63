#include "runtime/base/write_all.hpp"

#include "runtime/base/fd.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

using namespace penstock;

namespace {

struct pipe_ends {
  unique_fd read_end;
  unique_fd write_end;
};

pipe_ends make_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  return {unique_fd(ends[0]), unique_fd(ends[1])};
}

void do_nothing(int) {}

}  // namespace

TEST_CASE("text larger than a pipe arrives completely even if signals interrupt the write") {
  struct sigaction action {};
  action.sa_handler = do_nothing;  // without SA_RESTART: a blocked write returns early, or with EINTR
  struct sigaction before {};
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  pipe_ends pipe = make_pipe();
  std::string sent;
  for (std::size_t i = 0; i < std::size_t{1} << 20U; ++i) sent += static_cast<char>(i * 7 + i / 251);
  int code = -1;
  std::thread writer([&] {
    code = write_all(pipe.write_end.get(), sent);
    pipe.write_end.reset();
  });
  std::string got;
  std::array<char, 4096> piece{};
  while (true) {
    // The writer cannot finish before the last piece is read, so its thread still exists.
    if (got.size() < sent.size() / 2) ::pthread_kill(writer.native_handle(), SIGUSR1);
    const ssize_t bytes = ::read(pipe.read_end.get(), piece.data(), piece.size());
    if (bytes <= 0) break;
    got.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  writer.join();
  CHECK(code == 0);
  CHECK(got == sent);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("text larger than a pipe arrives completely even if the pipe is non-blocking") {
  pipe_ends pipe = make_pipe();
  REQUIRE(::fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK) == 0);
  const std::string sent(std::size_t{1} << 20U, 'x');
  int code = -1;
  std::thread writer([&] {
    code = write_all(pipe.write_end.get(), sent);
    pipe.write_end.reset();
  });
  std::size_t got = 0;
  std::array<char, 4096> piece{};
  for (ssize_t bytes = 0; (bytes = ::read(pipe.read_end.get(), piece.data(), piece.size())) > 0;)
    got += static_cast<std::size_t>(bytes);
  writer.join();
  CHECK(code == 0);
  CHECK(got == sent.size());
}

TEST_CASE("a failed write returns its errno, and writing nothing succeeds") {
  CHECK(write_all(-1, "x") == EBADF);
  CHECK(write_all(-1, "") == 0);
  const unique_fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full);
  CHECK(write_all(full.get(), "x") == ENOSPC);
}
