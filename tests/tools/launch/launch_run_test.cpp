#include "tools/penstock/launch/launch_run.hpp"

#include <boost/asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <future>
#include <thread>

using namespace penstock;
using namespace penstock::cli;
using namespace std::chrono_literals;

namespace {

/// A program whose execution waits until release(), as on an unresponsive file server; uses a file lease.
class held_program {
 public:
  held_program()
      : path_(std::filesystem::temp_directory_path() / ("penstock-held-" + std::to_string(::getpid()))) {
    std::filesystem::copy_file("/bin/true", path_, std::filesystem::copy_options::overwrite_existing);
    ::signal(SIGIO, SIG_IGN);  // SIGIO is the kernel's request for the lease
    lease_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    held_ = ::fcntl(lease_.get(), F_SETLEASE, F_WRLCK) == 0;
  }
  ~held_program() {
    release();
    std::filesystem::remove(path_);
  }
  [[nodiscard]] bool held() const { return held_; }
  [[nodiscard]] std::string path() const { return path_.string(); }
  void release() { lease_.reset(); }

 private:
  std::filesystem::path path_;
  unique_fd lease_;
  bool held_ = false;
};

}  // namespace

TEST_CASE("a rank that ends before its start is known has its own exit code and is not reaped as a stray") {
  held_program before;
  if (!before.held()) SKIP("no lease on files of the temporary folder");
  process::io_thread io;
  io.spawner().start({before.path(), {}, {}, {}, {}}, [](result<process::unclaimed_child>) {});
  boost::asio::steady_timer before_the_look(io.context());

  // The launcher looks for strays 500 ms after its first look. The test makes the rank end
  // just before that look: the report of the rank's start is then queued behind the look.
  const auto let_it_end = [&] {
    std::promise<void> posted;
    before.release();
    io.spawner().start({"/no/such/program", {}, {}, {}, {}},
                       [&](result<process::unclaimed_child>) { posted.set_value(); });
    posted.get_future().wait();  // the report of the rank's start is posted, too
    siginfo_t ended{};
    ::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT);
  };
  launch_work work;
  work.program = "/bin/true";
  work.arguments = [&](std::uint32_t) {
    before_the_look.expires_after(450ms);
    before_the_look.async_wait([&](const boost::system::error_code&) {
      std::this_thread::sleep_for(400ms);  // afterwards the look is due
      boost::asio::post(io.context(), let_it_end);
    });
    return std::vector<std::string>();
  };
  work.places.resize(1);
  work.rules.ranks = 1;
  work.tell = [](const std::string&) {};
  launch_run run(io, std::move(work));
  const launch_result made = run.run();
  CHECK(made.outcome == launch_outcome::finished);
  CHECK(made.ranks.at(0).end == "exit code 0");
}
