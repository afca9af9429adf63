// Processes that share files: which of them makes the files, who gets them, and what happens if the maker is lost.
#include "runtime/process/shared_files.hpp"

#include "runtime/base/mapping.hpp"

#include <catch2/catch_test_macros.hpp>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

using namespace penstock;
using namespace penstock::process;
using namespace std::chrono_literals;

namespace {

std::string new_name() {
  static int number = 0;
  return fmt::format("penstock/test/{}/{}", ::getpid(), ++number);
}

unique_fd new_file() {
  auto made = create_memory_file("shared", "a file of the test");
  REQUIRE(made);
  return std::move(*made);
}

ino_t inode_of(int file) {
  struct ::stat facts {};
  return ::fstat(file, &facts) == 0 ? facts.st_ino : 0;
}

struct word_pipe {
  std::array<int, 2> fds{-1, -1};
  word_pipe() { REQUIRE(::pipe(fds.data()) == 0); }
  ~word_pipe() {
    ::close(fds[0]);
    close_writing();
  }
  word_pipe(const word_pipe&) = delete;
  word_pipe& operator=(const word_pipe&) = delete;
  void close_writing() { ::close(std::exchange(fds[1], -1)); }
  void wait_for_end() const {
    char none = 0;
    while (::read(fds[0], &none, 1) > 0) {
    }
  }
  template <class T>
  void write(const T& value) const {
    if (::write(fds[1], &value, sizeof value) != sizeof value) ::abort();
  }
  template <class T>
  T read() const {
    T value{};
    REQUIRE(::read(fds[0], &value, sizeof value) == sizeof value);
    return value;
  }
};

/// Runs in a child; its return value is the exit code.
class other_process {
 public:
  explicit other_process(const std::function<int()>& run) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(run());
  }
  ~other_process() {
    if (pid_ > 0) end(SIGKILL);
  }
  other_process(const other_process&) = delete;
  other_process& operator=(const other_process&) = delete;
  void kill() const { ::kill(pid_, SIGKILL); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void wait_until_stopped() const {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
    REQUIRE(WIFSTOPPED(status));
  }
  int exit_code() { return end(0); }

 private:
  int end(int signal) {
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid_;
};

/// The inode of the only file that this process gets; 0 if it gets none.
ino_t inode_found(const std::string& name) {
  auto found = shared_files::find(name).take();
  return found.size() == 1 ? inode_of(found.front().get()) : 0;
}

}  // namespace

TEST_CASE("of processes that ask at the same time, one makes the file and all have the same one") {
  struct outcome {
    ino_t inode;
    bool made;
  };
  constexpr int count = 8;
  const std::string name = new_name();
  word_pipe begin;
  word_pipe results;
  word_pipe finish;
  std::vector<std::unique_ptr<other_process>> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(std::make_unique<other_process>([&] {
      begin.close_writing();
      finish.close_writing();
      begin.wait_for_end();
      shared_files shared = shared_files::find(name);
      std::vector<unique_fd> files = shared.take();
      const bool made = files.empty();
      if (made) {
        files.push_back(new_file());
        shared.publish(std::array{files.front().get()});
      }
      results.write(outcome{inode_of(files.front().get()), made});
      finish.wait_for_end();
      return 0;
    }));
  }
  begin.close_writing();
  std::set<ino_t> inodes;
  int makers = 0;
  for (int i = 0; i < count; ++i) {
    const auto one = results.read<outcome>();
    inodes.insert(one.inode);
    makers += one.made ? 1 : 0;
  }
  finish.close_writing();
  for (auto& one : all) CHECK(one->exit_code() == 0);
  CHECK(makers == 1);
  CHECK(inodes.size() == 1);
}

TEST_CASE("a process that waits becomes the maker if the maker is killed") {
  const std::string name = new_name();
  word_pipe ready;
  const other_process first([&] {
    const shared_files shared = shared_files::find(name);
    ready.write('r');
    return ::pause();
  });
  ready.read<char>();
  shared_files shared = shared_files::find(name, [&] { first.kill(); });
  CHECK(shared.take().empty());
  const unique_fd file = new_file();
  shared.publish(std::array{file.get()});
  other_process third([&] { return inode_found(name) == inode_of(file.get()) ? 0 : 1; });
  CHECK(third.exit_code() == 0);
}

TEST_CASE("a process that waits becomes the maker if the maker gives up") {
  const std::string name = new_name();
  word_pipe ready;
  word_pipe waits;
  const other_process first([&] {
    shared_files shared = shared_files::find(name);
    ready.write('r');
    waits.read<char>();
    shared = {};
    return ::pause();
  });
  ready.read<char>();
  bool told = false;
  shared_files shared = shared_files::find(name, [&] {
    if (!std::exchange(told, true)) waits.write('w');
  });
  CHECK(told);
  CHECK(shared.take().empty());
  const unique_fd file = new_file();
  shared.publish(std::array{file.get()});
  other_process third([&] { return inode_found(name) == inode_of(file.get()) ? 0 : 1; });
  CHECK(third.exit_code() == 0);
}

TEST_CASE("a maker that is suspended is waited for no longer than the patience") {
  const std::string name = new_name();
  const other_process first([&] {
    const shared_files shared = shared_files::find(name);
    return ::raise(SIGSTOP);
  });
  first.wait_until_stopped();
  int told = 0;
  shared_files shared = shared_files::find(name, [&] { ++told; }, {.silence = 100ms});
  CHECK(shared.take().empty());
  CHECK(told <= 1);
}

TEST_CASE("a name that another process holds without listening delays nobody for long") {
  const std::string name = new_name();
  const unique_fd silent(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  REQUIRE(::bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0);
  CHECK(shared_files::find(name, {}, {.refusal = 50ms}).take().empty());
}

TEST_CASE("each process gets the files once, and the maker none, so that a second request gives new ones") {
  const std::string name = new_name();
  shared_files shared = shared_files::find(name);
  const unique_fd file = new_file();
  shared.publish(std::array{file.get()});
  CHECK(inode_found(name) == 0);
  for (int i = 0; i < 2; ++i) {
    other_process other([&] {
      if (inode_found(name) != inode_of(file.get())) return 1;
      return inode_found(name) == 0 ? 0 : 2;
    });
    CHECK(other.exit_code() == 0);
  }
}

TEST_CASE("as many files as the kernel passes at once are shared, in their order") {
  const std::string name = new_name();
  shared_files shared = shared_files::find(name);
  std::vector<unique_fd> files;
  std::vector<int> fds;
  std::vector<ino_t> inodes;
  for (std::size_t i = 0; i < shared_files_max; ++i) {
    files.push_back(new_file());
    fds.push_back(files.back().get());
    inodes.push_back(inode_of(fds.back()));
  }
  shared.publish(fds);
  other_process other([&] {
    std::vector<ino_t> found;
    for (const unique_fd& one : shared_files::find(name).take()) found.push_back(inode_of(one.get()));
    return found == inodes ? 0 : 1;
  });
  CHECK(other.exit_code() == 0);
}

TEST_CASE("files of another user are not used") {
  if (::geteuid() != 0) SKIP("only root can run a process of another user");
  const std::string name = new_name();
  word_pipe ready;
  const other_process stranger([&] {
    if (::setuid(65534) != 0) return 1;
    shared_files shared = shared_files::find(name);
    const unique_fd file = new_file();
    shared.publish(std::array{file.get()});
    ready.write('r');
    return ::pause();
  });
  ready.read<char>();
  CHECK(inode_found(name) == 0);
}

TEST_CASE("a process of another user gets no files") {
  if (::geteuid() != 0) SKIP("only root can run a process of another user");
  const std::string name = new_name();
  shared_files shared = shared_files::find(name);
  const unique_fd file = new_file();
  shared.publish(std::array{file.get()});
  other_process stranger([&] {
    if (::setuid(65534) != 0) return 1;
    const unique_fd asks(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    if (::connect(asks.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) != 0) return 2;
    char word = 0;
    return ::recv(asks.get(), &word, 1, 0) == 0 ? 0 : 3;
  });
  CHECK(stranger.exit_code() == 0);
}
