#include "runtime/process/child_end.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/process/spawn.hpp"

#include <boost/asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <sstream>

using namespace penstock;
using namespace penstock::process;

namespace {

struct pipe_ends {
  unique_fd read;
  unique_fd write;
};

pipe_ends make_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  return {unique_fd(ends[0]), unique_fd(ends[1])};
}

spawn_request shell(const std::string& script) {
  return {"/bin/sh", {"-c", script}, {"PATH=/bin:/usr/bin"}, {}};
}

std::string read_all(const unique_fd& from) {
  std::string text;
  std::array<char, 4096> piece;
  while (true) {
    const ssize_t bytes = ::read(from.get(), piece.data(), piece.size());
    if (bytes <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
  }
}

std::string read_line(const unique_fd& from) {
  std::string text;
  char c = 0;
  while (::read(from.get(), &c, 1) == 1 && c != '\n') text += c;
  return text;
}

exit_report reap_now(const child& dying) {
  const auto report = reap(dying, std::chrono::seconds(10));
  REQUIRE(report);
  return *report;
}

/// The output of a shell script, and how it ended.
std::pair<std::string, exit_report> output_of(spawn_request request) {
  pipe_ends out = make_pipe();
  request.fds.push_back({out.write.get(), 1});
  auto started = spawn(request);
  REQUIRE(started);
  out.write.reset();
  std::string text = read_all(out.read);
  return {text, reap_now(*started)};
}

/// The states of a group's processes, one letter each as in /proc/PID/stat, without zombies that wait for init.
std::string states_of(pid_t group) {
  std::string states;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(process.path() / "stat");
    std::string line;
    if (!std::getline(stat, line)) continue;
    std::istringstream fields(line.substr(line.rfind(')') + 1));  // the process's name may contain anything
    char state = 0;
    pid_t parent = 0;
    pid_t its_group = 0;
    fields >> state >> parent >> its_group;
    if (its_group == group && state != 'Z' && state != 'X') states += state;
  }
  return states;
}

/// Waits until the group's states are the expected ones; false after two seconds.
bool becomes(pid_t group, const std::string& expected) {
  for (int i = 0; i < 400; ++i) {
    if (states_of(group) == expected) return true;
    ::poll(nullptr, 0, 5);
  }
  return false;
}

bool group_is_gone(pid_t group) {
  return becomes(group, "");
}

std::string guarded_child() {
  return find_program("process_guarded_child").value();
}

std::unique_ptr<child_process> watched(io_thread& io, const spawn_request& request, unique_fd output,
                                       child_callbacks callbacks,
                                       std::chrono::milliseconds dies_within = child_process::time_to_die) {
  return child_process::watch(io.context(), spawn(request).value(), std::move(output), std::move(callbacks), dies_within)
      .value();
}

bool is_readable(const unique_fd& fd) {
  pollfd entry{fd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

/// A new process with the pid of one that was reaped before; empty if the kernel does not allow choosing a pid.
std::optional<child> reuse_pid(pid_t wanted) {
  constexpr const char* last_pid = "/proc/sys/kernel/ns_last_pid";
  pid_t before = wanted;
  std::ifstream(last_pid) >> before;
  std::ofstream(last_pid) << wanted - 1 << std::flush;
  auto unrelated = spawn(shell("sleep 1000")).value();
  std::ofstream(last_pid) << before << std::flush;  // other tests, too, expect that pids are not reused at once
  if (unrelated.pid == wanted) return unrelated;
  ::kill(unrelated.pid, SIGKILL);
  reap_now(unrelated);
  return std::nullopt;
}

}  // namespace

TEST_CASE("the report of a dying process names the sender of the signal and ignores earlier stacks") {
  const std::string sent = "penstock-stack: signal 11, thread 5, sent by process 4711\npenstock-stack: #0 main+0x1\n";
  const std::string raised = "penstock-stack: signal 11, thread 5\npenstock-stack: #0 main+0x1, sent by process 3\n";
  CHECK(process::sender_in("reading\n" + sent, SIGSEGV) == 4711);
  CHECK(process::sender_in(sent, SIGKILL) == 0);  // a helper that the process has started wrote it
  CHECK(process::sender_in(raised, SIGSEGV) == 0);
  CHECK(process::sender_in(sent + raised, SIGSEGV) == 0);
  CHECK(process::sender_in("signal 11, sent by process 4711", SIGSEGV) == 0);
}

TEST_CASE("of a stack that Python wrote, the frames nearest to the crash are kept") {
  std::string output = "loading\nStack (most recent call first):\n";
  for (int frame = 0; frame < 15; ++frame) output += "  File \"f.py\", line " + std::to_string(frame) + " in f\n";
  CHECK(process::last_lines_without_stack(output + "penstock-stack: #0 main\n", 3) ==
        "Stack (most recent call first):\n  File \"f.py\", line 0 in f\n  File \"f.py\", line 1 in f");
  CHECK(process::last_lines_without_stack("a\nb\nStack (most recent call first):\n  x\n", 3) == "b\nStack (most recent call first):\n  x");
}

TEST_CASE("reports say how a process ended") {
  auto exited = spawn(shell("exit 7"));
  REQUIRE(exited);
  const exit_report seven = reap_now(*exited);
  CHECK(seven.ending == exit_report::how::exited);
  CHECK(seven.code == 7);

  auto killed = spawn(shell("kill -SEGV $$"));
  REQUIRE(killed);
  const exit_report segv = reap_now(*killed);
  CHECK(segv.ending == exit_report::how::signalled);
  CHECK(signal_name(segv.code) == "SIGSEGV");
}

TEST_CASE("signals have the names that the C library gives them") {
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    const char* name = ::sigabbrev_np(signal);
    CHECK(signal_name(signal) ==
          (name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal)));
  }
  CHECK(signal_name(SIGRTMIN) == "signal " + std::to_string(SIGRTMIN));
}

TEST_CASE("a child has only the descriptors passed to it") {
  const unique_fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const unique_fd leaky(
      ::fcntl(null.get(), F_DUPFD, 77));  // not close-on-exec, as the descriptors of an embedding program may be
  REQUIRE(leaky);
  // The shell itself has the folder open while listing it.
  const auto [listing, report] = output_of(shell("echo /proc/self/fd/*"));
  CHECK(listing == "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n");
}

TEST_CASE("descriptors arrive under the requested numbers, even if they are swapped") {
  pipe_ends a = make_pipe();
  pipe_ends b = make_pipe();
  spawn_request request = shell("echo first >&4; echo second >&3");
  request.fds = {{a.write.get(), b.write.get()}, {b.write.get(), a.write.get()}};
  request.arguments[1] = fmt::format("echo first >&{}; echo second >&{}", b.write.get(), a.write.get());
  auto started = spawn(request);
  REQUIRE(started);
  a.write.reset();
  b.write.reset();
  CHECK(read_all(a.read) == "first\n");
  CHECK(read_all(b.read) == "second\n");
  reap_now(*started);
}

TEST_CASE("a child starts with default signal handling and an empty mask, whatever its parent uses") {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto old = ::signal(SIGINT, SIG_IGN);
  const auto [status, report] = output_of(shell("cat /proc/self/status"));
  ::signal(SIGINT, old);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK(status.find("SigBlk:\t0000000000000000") != std::string::npos);
  CHECK(status.find("SigIgn:\t0000000000000000") != std::string::npos);
}

TEST_CASE("a child leads its own process group") {
  const auto [text, report] =
      output_of(shell("ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat"));
  CHECK(std::stoi(text) == report.pid);
}

TEST_CASE("a program that is missing or not executable is refused and named") {
  auto missing = spawn({"/nonexistent/worker", {}, {}, {}});
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::worker_program);
  CHECK(missing.error().message == "executing '/nonexistent/worker': No such file or directory");
  auto folder = spawn({"/tmp", {}, {}, {}});
  REQUIRE_FALSE(folder);
  CHECK(folder.error().os_code == EACCES);
  const std::string not_found = find_program("penstock-no-such-program").error().message;
  CHECK(not_found.find("was not found; looked in") != std::string::npos);
  const std::string folder_of_tests = std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + ",";
  CHECK(not_found.find(folder_of_tests) != std::string::npos);
  CHECK(not_found.find(folder_of_tests) == not_found.rfind(folder_of_tests));  // the library is in the same folder
}

TEST_CASE("processes started by a child die with it") {
  pipe_ends out = make_pipe();
  spawn_request request = shell("sleep 1000 & echo started; wait");
  request.fds.push_back({out.write.get(), 1});
  auto started = spawn(request);
  REQUIRE(started);
  out.write.reset();
  REQUIRE(read_line(out.read) == "started");
  ::kill(started->pid, SIGKILL);  // kills only the leader of its group
  reap_now(*started);
  CHECK(group_is_gone(started->pid));
}

TEST_CASE("a child limited to one core gets time to exit before it is reaped, and others do not") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  if (CPU_COUNT(&ours) == 1) SKIP("this test itself is limited to one core");
  auto started = spawn(shell("sleep 60"));
  REQUIRE(started);
  CHECK(time_to_leave(*started) == std::chrono::milliseconds(0));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &ours)) CPU_SET(core, &one);
  }
  REQUIRE(::sched_setaffinity(started->pid, sizeof one, &one) == 0);
  CHECK(time_to_leave(*started) > std::chrono::milliseconds(0));
  signal_group(*started, SIGKILL);
  siginfo_t info;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(started->pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(time_to_leave(*started) > std::chrono::milliseconds(0));  // works for a zombie too
  CHECK(reap_now(*started).ending == exit_report::how::signalled);
}

TEST_CASE("if the program ignores SIGCHLD, a child's end is detected and its cause is unknown") {
  const auto old = ::signal(SIGCHLD, SIG_IGN);
  auto started = spawn(shell("exit 7"));
  REQUIRE(started);
  const exit_report report = reap_now(*started);
  ::signal(SIGCHLD, old);
  CHECK(report.ending == exit_report::how::unknown);
}

TEST_CASE("when the lifeline closes, a child and all that it started are killed") {
  auto made = lifeline::create();
  REQUIRE(made);
  pipe_ends out = make_pipe();
  auto started =
      spawn({guarded_child(), {"with-grandchild"}, {}, {{made->read_end.get(), 3}, {out.write.get(), 1}}});
  REQUIRE(started);
  REQUIRE(read_line(out.read) == "ready");
  made->write_end.reset();
  const exit_report report = reap_now(*started);
  CHECK(report.code == SIGKILL);
  CHECK(group_is_gone(started->pid));
}

TEST_CASE("the death of a session kills its children, including stopped ones and grandchildren") {
  const bool stopped = GENERATE(false, true);
  CAPTURE(stopped);
  pipe_ends out = make_pipe();
  const pid_t session = ::fork();
  if (session == 0) {
    // The child holds the only copy of its lifeline end until it is killed.
    auto made = lifeline::create();
    auto started =
        spawn({guarded_child(), {"with-grandchild"}, {}, {{made->read_end.get(), 3}, {out.write.get(), 1}}});
    ::dprintf(out.write.get(), "%d\n", started ? started->pid : -1);
    while (true) ::pause();
  }
  out.write.reset();
  pid_t child = 0;
  for (int lines = 0; lines < 2; ++lines) {
    const std::string line = read_line(out.read);
    if (line != "ready") child = std::stoi(line);
  }
  REQUIRE(child > 0);
  if (stopped) {
    ::kill(-child, SIGSTOP);
    REQUIRE(becomes(child, "TT"));
  }
  ::kill(session, SIGKILL);
  ::waitpid(session, nullptr, 0);
  CHECK(group_is_gone(child));
}

TEST_CASE("a child's end is reported on the io thread with its last output") {
  io_thread io;
  pipe_ends out = make_pipe();
  spawn_request request = shell("echo one; echo two >&2; printf three; exit 3");
  request.fds = {{out.write.get(), 1}, {out.write.get(), 2}};
  std::promise<std::pair<int, std::string>> ended;
  std::vector<std::string> lines;
  std::unique_ptr<child_process> child;
  boost::asio::post(io.context(), [&] {
    child_callbacks callbacks;
    callbacks.output = [&](std::string_view line) { lines.emplace_back(line); };
    callbacks.exited = [&](const exit_report& report, const output_tail& tail) {
      ended.set_value({report.code, tail.text()});
    };
    child = watched(io, request, std::move(out.read), std::move(callbacks));
    out.write.reset();
  });
  const auto [code, text] = ended.get_future().get();
  CHECK(code == 3);
  CHECK(text == "one\ntwo\nthree");
  CHECK(lines == std::vector<std::string>{"one", "two", "three"});
}

TEST_CASE("a process that reuses the pid of a child reaped by the program gets none of its signals") {
  const auto old = ::signal(SIGCHLD, SIG_IGN);  // with SIG_IGN, the kernel reaps at once
  auto gone = spawn(shell("exit 0")).value();
  pollfd end{gone.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&end, 1, 10'000) == 1);
  std::optional<child> unrelated;
  for (int i = 0; i < 100 && !unrelated; ++i) unrelated = reuse_pid(gone.pid);
  if (!unrelated) {
    ::signal(SIGCHLD, old);
    WARN("not tried: the kernel does not let this user choose a pid");
    return;
  }
  signal_group(gone, SIGKILL);
  reap(gone, std::chrono::seconds(10));
  ::poll(nullptr, 0, 50);  // a signal would have killed it by now
  CHECK_FALSE(is_readable(unrelated->pidfd));
  ::kill(-unrelated->pid, SIGKILL);
  reap_now(*unrelated);
  ::signal(SIGCHLD, old);
}

TEST_CASE("processes started by a child die with it even if the program ignores SIGCHLD") {
  const auto old = ::signal(SIGCHLD, SIG_IGN);
  pipe_ends out = make_pipe();
  spawn_request request = shell("sleep 1000 & echo started");
  request.fds.push_back({out.write.get(), 1});
  auto started = spawn(request).value();
  out.write.reset();
  REQUIRE(read_line(out.read) == "started");
  const auto report = reap(started, std::chrono::seconds(10));
  ::signal(SIGCHLD, old);
  CHECK(report);
  CHECK(states_of(started.pid).empty());
}

TEST_CASE("the end of a child is reported once no process that it started can still write") {
  io_thread io;
  pipe_ends said = make_pipe();
  pipe_ends held = make_pipe();  // only the grandchild has it, until its memory is freed
  std::promise<bool> grandchild_gone;
  std::unique_ptr<child_process> child;
  boost::asio::post(io.context(), [&] {
    child_callbacks callbacks;
    callbacks.exited = [&](const exit_report&, const output_tail&) {
      grandchild_gone.set_value(is_readable(held.read));
    };
    child = watched(
        io, {guarded_child(), {"with-large-grandchild"}, {}, {{said.write.get(), 1}, {held.write.get(), 4}}},
        {}, std::move(callbacks), std::chrono::minutes(10));  // on a busy machine, freeing takes longer than a session waits
    said.write.reset();
    held.write.reset();
  });
  REQUIRE(read_line(said.read) == "ready");
  boost::asio::post(io.context(), [&] { ::kill(child->pid(), SIGKILL); });  // kills only the leader of its group
  CHECK(grandchild_gone.get_future().get());
  std::promise<void> dropped;
  boost::asio::post(io.context(), [&] {
    child.reset();
    dropped.set_value();
  });
  dropped.get_future().get();
}

TEST_CASE("destroying the handle of a running child kills it") {
  io_thread io;
  std::promise<unique_fd> dropped;
  boost::asio::post(io.context(), [&] {
    auto child = watched(io, shell("sleep 1000"), {}, {});
    unique_fd process(static_cast<int>(::syscall(SYS_pidfd_open, child->pid(), 0U)));
    child.reset();
    dropped.set_value(std::move(process));
  });
  // Signal the child through a pidfd: its pid may belong to another process by now.
  const unique_fd process = dropped.get_future().get();
  REQUIRE(process);
  const int why = ::syscall(SYS_pidfd_send_signal, process.get(), 0, nullptr, 0U) == 0 ? 0 : errno;
  CHECK(why == ESRCH);  // a zombie would still accept signals
}

TEST_CASE("output is kept up to a limit, and endless lines are cut") {
  output_tail tail;
  std::size_t lines = 0;
  std::size_t longest = 0;
  const auto count = [&](std::string_view line) {
    ++lines;
    longest = std::max(longest, line.size());
  };
  const std::string flood(1000, 'x');
  for (int i = 0; i < 1000; ++i) tail.append(flood, count);
  tail.append("\nlast line\n", count);
  tail.finish(count);
  CHECK(lines == 2);
  CHECK(longest == 4096);
  CHECK(tail.text().size() <= output_tail::kept_bytes);
  CHECK(tail.last_lines(1) == "last line");
  CHECK(tail.text().ends_with("\nlast line\n"));
}
