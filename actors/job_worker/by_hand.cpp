#include "actors/job_worker/by_hand.hpp"

#include "actors/job_worker/thrown.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace penstock::job_worker {
namespace {

using child::complain;
using child::exit_usage;

/// A separate allocation of exactly the requested size, so that a sanitizer catches the first byte beyond it.
class private_room final : public JobCall::room {
 public:
  std::span<std::byte> reserve(std::uint64_t bytes) override {
    memory_ = std::vector<std::byte>(bytes);
    return memory_;
  }
  void shorten(std::uint64_t bytes) override {
    if (bytes > memory_.size()) {
      throw error(
          {errc::usage,
           fmt::format("shorten_result({}): result() reserved only {} bytes", bytes, memory_.size()),
           0});
    }
    memory_.resize(bytes);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return memory_; }

 private:
  std::vector<std::byte> memory_;
};

result<std::vector<std::byte>> everything_from(int fd) {
  std::vector<std::byte> all;
  std::array<std::byte, 64 * 1024> piece;
  while (true) {
    const ssize_t bytes = ::read(fd, piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return refuse_os(errc::io, errno, "reading the argument from stdin");
    if (bytes == 0) return all;
    all.insert(all.end(), piece.begin(), piece.begin() + bytes);
  }
}

std::vector<std::string> names_of(const std::vector<named_function>& functions) {
  std::vector<std::string> names;
  for (const named_function& f : functions) names.push_back(f.name);
  return names;
}

int run(const std::vector<named_function>& functions, const std::string& name, std::string_view program) {
  const auto f = std::ranges::find(functions, name, &named_function::name);
  if (f == functions.end()) {
    const std::string near(nearest_name(name, names_of(functions)));
    complain(program, fmt::format("there is no function '{}'{}; --list shows the functions", name,
                                  near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
    return exit_usage;
  }
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // as in a worker that a pool starts
  // The function's own output must not end up in the result.
  const int out = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const auto argument = everything_from(STDIN_FILENO);
  if (!argument) {
    complain(program, argument.error().message);
    return exit_usage;
  }
  private_room room;
  JobCall call(*argument, room, 1, 1, 0);
  try {
    f->run(call);
  } catch (...) {
    const arena::job_exception_text why = thrown();
    std::fflush(stdout);
    fmt::print(stderr, "{}: {} threw {}: {}\n", printable(program), printable(name), printable(why.type),
               printable(why.text));
    if (!why.traceback.empty()) fmt::print(stderr, "{}\n", why.traceback);
    return exit_codes::failed;
  }
  std::fflush(stdout);
  if (const int trouble = write_all(out, room.bytes()); trouble != 0) {
    complain(program, os_failure(errc::io, trouble, "writing the result to stdout").message);
    return exit_codes::failed;
  }
  return exit_codes::finished;
}

}  // namespace

result<by_hand_request> parse_by_hand(const std::vector<std::string>& arguments) {
  by_hand_request made;
  const auto name_function = [&made](const std::string& value) -> result<void> {
    if (!made.function.empty())
      return refuse(errc::usage, "--run is given twice, but only one function can run");
    if (value.empty()) return refuse(errc::usage, "which function? Write --run NAME; --list shows the functions");
    made.function = value;
    return {};
  };
  const auto asked = child::parse_by_hand(
      arguments, {{"--run", name_function}, {"--list", &made.list}, {"--help", &made.help}});
  if (!asked) return tl::unexpected(asked.error());
  made.asked = *asked;
  if (made.list && !made.function.empty())
    return refuse(errc::usage, "--list does not run a function: leave out --run or --list");
  return made;
}

std::string by_hand_help(std::string_view program) {
  return fmt::format(
      R"(This is a job worker of penstock. A pool (penstock::Pool, penstock map) starts it and calls its functions.

Started by hand, it runs one function in this process, for a debugger, a sanitizer or a profiler:

  {0} --run NAME < argument > result
  {0} --list

  --run NAME   the function; its argument is all of stdin, its result goes to stdout, and what it
               prints goes to stderr
  --list       the names of the functions
  --help       this text

Arguments before the first of these are the program's own.
Exit codes: 0 the function returned, 1 it threw, 2 wrong usage, 78 no option was given.
)",
      program);
}

int run_by_hand(const std::vector<named_function>& functions) {
  return child::start_by_hand(
      parse_by_hand, by_hand_help,
      "This is a job worker of penstock. A pool (penstock::Pool, penstock map) starts it and calls its "
      "functions.\n"
      "To run one without a pool, in a debugger for example: {} --run NAME < argument > result\n",
      [&functions](const by_hand_request& request, const std::string& program) {
        if (!request.list) return run(functions, request.function, program);
        for (const named_function& f : functions) fmt::print("{}\n", printable(f.name));
        return static_cast<int>(exit_codes::finished);
      });
}

}  // namespace penstock::job_worker
