// Does with a session what embedding programs do: exit, fork, block signals, end threads. embedding_test.py runs it, one mode per test, and
// contains the expectations. EMBEDDER_DEVICE=cuda does the same on a GPU.
#include <penstock/session.hpp>

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

using namespace penstock;

namespace {

// Static on purpose: its destructor runs in exit(), even in a forked child.
std::optional<Session> the_session;

config settings() {
  config c;
  c.name = "embedder";
  c.dataset.type = dataset_type::synthetic;
  c.dataset.samples = 400;
  c.dataset.bytes_per_sample = byte_size{4096};
  c.dataset.fill = fill_kind::random;
  c.sampler.batch_size = 8;
  c.loader.workers = 2;
  const char* device = std::getenv("EMBEDDER_DEVICE");
  c.gpu.device = device != nullptr ? device : "host";
  c.log.level = log_level::error;
  return c;
}

void begin(const config& c = settings()) {
  session_options o;
  o.digests = true;
  o.control_socket = false;
  the_session.emplace(c, o);
}

void say_workers() {
  // The second worker may still be starting.
  session_status s = the_session->status();
  while (s.workers.size() < 2 || !s.workers[0].pid || !s.workers[1].pid) s = the_session->status();
  std::printf("workers %d %d\n", *s.workers[0].pid, *s.workers[1].pid);
  std::fflush(stdout);
}

void take(int batches) {
  for (int i = 0; i < batches; ++i) the_session->next();
}

void finish() {
  while (the_session->next()) {
  }
  std::printf("digest %s\n", the_session->report().epochs.at(0).digest.value_or("none").c_str());
  std::fflush(stdout);
}

/// The exit code of our child; -1 if a signal ended it.
int code_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string blocked_signals_of(std::int32_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("SigBlk:")) return line.substr(8);
  }
  return "ffffffffffffffff";
}

// ---- modes -----------------------------------------------------------------------------------------------

int plain() {
  begin();
  finish();
  return 0;
}

int exits_with_a_live_session() {
  begin();
  take(3);
  say_workers();
  std::exit(7);
}

int forks_a_child_that_exits() {
  begin();
  take(3);
  const pid_t child = ::fork();
  if (child == 0) std::exit(3);  // runs the destructor of the copied object
  std::printf("child %d\n", code_of(child));
  finish();
  return 0;
}

int forks_a_child_that_uses_the_copy() {
  begin();
  std::optional<Batch> held = the_session->next();
  const pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    const auto expect_refusal = [&](const std::function<void()>& use) {
      try {
        use();
      } catch (const error& e) {
        refused += e.code() == errc::usage ? 1 : 0;
      }
    };
    expect_refusal([] { static_cast<void>(the_session->next()); });
    expect_refusal([] { static_cast<void>(the_session->status()); });
    expect_refusal([] { static_cast<void>(the_session->state()); });
    expect_refusal([&] { held->release_unused(); });
    the_session->stop();
    the_session->close();
    held.reset();
    the_session.reset();
    ::_exit(refused);
  }
  std::printf("child %d\n", code_of(child));
  held.reset();
  finish();
  return 0;
}

int forks_a_child_that_stays() {
  begin();
  take(3);
  const pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  std::printf("holder %d\n", child);
  say_workers();
  while (true) ::pause();
}

int forks_a_child_that_executes() {
  begin();
  take(3);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", "ls -l /proc/$$/fd >&2", nullptr);
    ::_exit(127);
  }
  std::printf("child %d\n", code_of(child));
  finish();
  return 0;
}

int blocks_all_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  begin();
  take(3);
  say_workers();
  // A worker briefly blocks signals while it starts its threads.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (const worker_status& w : the_session->status().workers) {
    std::string blocked;
    do {
      blocked = blocked_signals_of(*w.pid);
    } while (std::stoull(blocked, nullptr, 16) != 0 && std::chrono::steady_clock::now() < until);
    std::printf("blocked %s\n", blocked.c_str());
  }
  finish();
  the_session.reset();
  std::printf("mine %s\n", blocked_signals_of(::getpid()).c_str());
  return 0;
}

volatile std::sig_atomic_t alarms = 0;

int is_interrupted_every_millisecond() {
  struct sigaction action {};
  action.sa_handler = [](int) { alarms = alarms + 1; };  // no SA_RESTART
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 1000}, {0, 1000}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  config c = settings();
  c.dataset.wait = std::chrono::microseconds(500);
  begin(c);
  finish();
  the_session.reset();
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  std::printf("interrupted %s\n", alarms > 10 ? "often" : "seldom");
  return 0;
}

int reaps_everybody_s_children() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  };
  ::sigaction(SIGCHLD, &action, nullptr);
  config c = settings();
  c.dataset.faults = {{17, fault_kind::segv, 1, 1.0}};
  begin(c);
  finish();
  const run_report report = the_session->report();
  std::printf("deaths %zu\n", report.deaths.size());
  return 0;
}

int ends_the_thread_that_began() {
  std::thread([] {
    begin();
    take(3);
  }).join();
  say_workers();
  finish();
  std::printf("restarts %u\n", the_session->report().restarts);
  return 0;
}

int destroys_it_on_another_thread_than_the_first() {
  std::atomic<bool> destroyed{false};
  std::atomic<bool> begun{false};
  std::thread first([&] {
    begin();
    take(3);
    begun = true;
    begun.notify_all();
    destroyed.wait(false);  // stays alive
  });
  begun.wait(false);
  finish();
  the_session.reset();
  destroyed = true;
  destroyed.notify_all();
  first.join();
  return 0;
}

int has_no_standard_streams() {
  // Keeps the pipe that the test reads, under a descriptor number above 2.
  const int out = ::dup(STDOUT_FILENO);
  for (const int fd : {0, 1, 2}) ::close(fd);
  begin();
  while (the_session->next()) {
  }
  ::dprintf(out, "digest %s\n", the_session->report().epochs.at(0).digest.value_or("none").c_str());
  return 0;
}

/// Keeps both of two buffers while requesting a third batch (asks), or requests none. Prints the reported stall, then releases the batches.
int stalls(bool asks) {
  config c = settings();
  c.gpu.buffers = 2;
  std::atomic<bool> stalled = false;
  std::atomic<bool> moves_again = false;
  session_options o;
  o.digests = true;
  o.control_socket = false;
  o.on_event = [&](const event& e) {
    if (e.kind == event_kind::stalled) {
      std::printf("stalled %s\n", e.text.c_str());
      std::fflush(stdout);
      stalled = true;
      stalled.notify_all();
    } else if (e.kind == event_kind::progress_again) {
      moves_again = true;
      moves_again.notify_all();
    }
  };
  the_session.emplace(c, o);
  std::optional<Batch> first = the_session->next();
  std::optional<Batch> second;
  std::optional<Batch> third;
  std::thread asking([&] {
    if (!asks) return;
    second = the_session->next();
    third = the_session->next();  // returns when the first batch is released
  });
  stalled.wait(false);
  const auto status = the_session->status();
  std::printf("status %s %s\n", name_of(status.stalled->kind), name_of(status.state));
  first.reset();
  asking.join();
  second.reset();
  third.reset();
  std::thread rest(finish);
  moves_again.wait(false);
  rest.join();
  std::printf("after %s\n", the_session->status().stalled ? "stalled" : "moving");
  the_session.reset();  // destroyed before what its callback uses
  return 0;
}

int keeps_every_batch() {
  return stalls(true);
}

int asks_for_no_batch() {
  return stalls(false);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> modes{
      {"plain", plain},
      {"exit", exits_with_a_live_session},
      {"fork-exit", forks_a_child_that_exits},
      {"fork-use", forks_a_child_that_uses_the_copy},
      {"fork-stay", forks_a_child_that_stays},
      {"fork-exec", forks_a_child_that_executes},
      {"mask", blocks_all_signals},
      {"alarm", is_interrupted_every_millisecond},
      {"reap", reaps_everybody_s_children},
      {"thread", ends_the_thread_that_began},
      {"other-thread", destroys_it_on_another_thread_than_the_first},
      {"closed", has_no_standard_streams},
      {"keep", keeps_every_batch},
      {"idle", asks_for_no_batch},
  };
  const auto mode = modes.find(argc > 1 ? argv[1] : "");
  if (mode == modes.end()) return 2;
  try {
    return mode->second();
  } catch (const error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
