// Functions for tests of pools: well-behaved ones, and one per kind of misbehaviour.
#include <penstock/job.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

using namespace penstock;

namespace {

int number(const JobCall& call) {
  return std::stoi(std::string(call.text()));
}

/// Records each start of a function that must not start twice: appends one byte to the file named in its
/// argument.
void note_begin(const JobCall& call) {
  const int file = ::open(std::string(call.text()).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (::write(file, "x", 1) != 1) throw std::runtime_error("cannot note that it began");
  ::close(file);
}

[[noreturn]] void wait_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// Call it only in a memory cgroup.
[[noreturn]] void take_memory_until_killed() {
  while (true) std::memset(new char[32U << 20U], 1, 32U << 20U);
}

std::string deps() {
  const char* const variable = std::getenv("LEFT_BEHIND");
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  char folder[4096];
  return std::string(variable != nullptr ? variable : "-") + " " + ::getcwd(folder, sizeof folder) + " " +
         (::sigismember(&blocked, SIGUSR1) != 0 ? "blocked" : "open") + " " + std::to_string(files.rlim_cur) +
         " " + std::to_string(mask);
}

void change_everything() {
  ::setenv("LEFT_BEHIND", "something", 1);
  if (::chdir("/") != 0) std::abort();
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &one, nullptr);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = 64;
  ::setrlimit(RLIMIT_NOFILE, &files);
  ::umask(0777);
}

/// A job of the soak test: its argument begins with the fault that it causes in its first attempt.
void odd(JobCall& call) {
  const std::string fault(call.text().substr(0, call.text().find(' ')));
  if (fault == "always_kill") ::raise(SIGKILL);
  if (call.attempt() == 1) {
    if (fault == "kill") ::raise(SIGKILL);
    if (fault == "segv") ::raise(SIGSEGV);
    if (fault == "abort") std::abort();
    if (fault == "exit") std::exit(0);
    if (fault == "leak") std::memset(new char[300U << 20U], 1, 300U << 20U);
    if (fault == "hang") wait_for_ever();
    if (fault == "oom") take_memory_until_killed();
  }
  call.give(call.argument());
}

}  // namespace

int main() {
  int runs = 0;
  return job_main({
      {"odd", odd},
      {"nothing", [](JobCall&) {}},
      {"echo", [](JobCall& call) { call.give(call.argument()); }},
      {"double", [](JobCall& call) { call.give(std::to_string(2 * number(call))); }},
      {"fill",
       [](JobCall& call) {
         const auto all = call.result(static_cast<std::uint64_t>(number(call)));
         for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 31);
       }},
      {"sleep",
       [](JobCall& call) {
         std::this_thread::sleep_for(std::chrono::milliseconds(number(call)));
         call.give("awake");
       }},
      {"pid", [](JobCall& call) { call.give(std::to_string(::getpid())); }},
      {"count_runs", [&runs](JobCall& call) { call.give(std::to_string(++runs)); }},
      {"attempt", [](JobCall& call) { call.give(std::to_string(call.attempt())); }},
      {"throws", [](JobCall& call) { throw std::invalid_argument("no good: " + std::string(call.text())); }},
      {"throws_own",
       [](JobCall&) { throw job_exception("ZeroDivisionError", "division by zero", "line 1\nline 2"); }},
      {"throws_int", [](JobCall&) { throw 7; }},
      {"abort", [](JobCall&) { std::abort(); }},
      {"segv", [](JobCall&) { ::raise(SIGSEGV); }},
      {"exit", [](JobCall& call) { std::exit(number(call)); }},
      {"kill_once",
       [](JobCall& call) {
         if (call.attempt() == 1) ::raise(SIGKILL);
         call.give("alive");
       }},
      {"kill_twice",
       [](JobCall& call) {
         if (call.attempt() <= 2) ::raise(SIGKILL);
         call.give("alive");
       }},
      {"begin_and_die",
       [](JobCall& call) {
         note_begin(call);
         ::raise(SIGKILL);
       }},
      {"hang", [](JobCall&) { wait_for_ever(); }},
      {"stop_itself", [](JobCall&) { ::raise(SIGSTOP); }},
      {"close_link",
       [](JobCall& call) {
         ::close(3);
         call.give("closed");
       }},
      {"fork",
       [](JobCall& call) {
         const pid_t child = ::fork();
         call.give(child == 0 ? "child" : "parent");
       }},
      {"deps", [](JobCall& call) { call.give(deps()); }},
      {"change_everything", [](JobCall&) { change_everything(); }},
      {"print",
       [](JobCall& call) {
         const std::string line(1023, 'x');
         for (int i = 0; i < number(call); ++i) std::puts(line.c_str());
         std::fflush(stdout);
         call.give("printed");
       }},
      {"overrun",
       [](JobCall& call) {
         const auto room = call.result(100);
         std::memset(room.data(), 1, room.size() + 8);
       }},
      {"longer_than_room",
       [](JobCall& call) { call.shorten_result(static_cast<std::uint64_t>(call.result(10).size()) + 1); }},
      {"scribble",
       [](JobCall& call) {
         // Overwrites everything from its argument back to the header of the slot.
         auto* const begin = const_cast<std::byte*>(call.argument().data());
         std::memset(begin - 64, 0xff, 64);
         call.give("scribbled");
       }},
  });
}
