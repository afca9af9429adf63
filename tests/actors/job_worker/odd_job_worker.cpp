// A worker program with misbehaving functions, for job_main_test.cpp.
#include <penstock/job.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

using penstock::JobCall;

namespace {

void without_core_file() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
}

void give_up() {
  throw std::string("through noexcept");
}

void segv(JobCall&) {
  without_core_file();
  volatile int* const nowhere = nullptr;
  *nowhere = 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::string_view(arguments[1]) == "--no-functions") return penstock::job_main({});
  if (count > 1 && std::string_view(arguments[1]) == "--long-name")
    return penstock::job_main({{std::string(201, 'x'), [](JobCall&) {}}});
  return penstock::job_main({
      {"abort",
       [](JobCall&) {
         without_core_file();
         std::abort();
       }},
      {"attempt", [](JobCall& call) { call.give(std::to_string(call.attempt())); }},
      {"close everything",
       [](JobCall& call) {
         ::close_range(3, ~0U, 0);
         call.give("closed");
       }},
      {"close the link",
       [](JobCall& call) {
         ::close(3);
         ::close(7);
         // The next descriptors to be opened get these numbers.
         const int other = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
         call.give(std::to_string(other));
       }},
      {"echo", [](JobCall& call) { call.give(call.argument()); }},
      {"environment",
       [](JobCall& call) {
         const char* const value = ::getenv("CUDA_VISIBLE_DEVICES");
         call.give(value != nullptr ? std::string("'") + value + "'" : "none");
       }},
      {"exit", [](JobCall&) { std::exit(0); }},
      {"fork", [](JobCall& call) { call.give(::fork() == 0 ? "child" : "parent"); }},
      {"noexcept",
       [](JobCall&) noexcept {
         without_core_file();
         give_up();
       }},
      {"number", [](JobCall&) { throw 7; }},
      {"past the slot",
       [](JobCall& call) {
         without_core_file();
         std::memset(call.result(10).data(), 'x', 1 << 22);
       }},
      {"print",
       [](JobCall&) {
         const std::string line(1023, 'p');
         for (int i = 0; i < 20'000; ++i) std::cout << line << '\n';
         std::printf("an unfinished line");
       }},
      {"segv", segv},
      {"size", [](JobCall& call) { static_cast<void>(call.result(std::stoull(std::string(call.text())))); }},
      {"thread", [](JobCall& call) { std::thread([&] { call.give("from a thread"); }).join(); }},
      {"wait for a byte",
       [](JobCall& call) {
         // A named pipe: the test decides when the job ends.
         const int pipe = ::open(std::string(call.text()).c_str(), O_RDONLY | O_CLOEXEC);
         char byte = 0;
         static_cast<void>(::read(pipe, &byte, 1) == 1);
         ::close(pipe);
         call.give("got it");
       }},
  });
}
