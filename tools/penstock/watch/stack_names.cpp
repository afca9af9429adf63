#include "tools/penstock/watch/stack_names.hpp"

#include "runtime/process/child_end.hpp"
#include "runtime/process/spawn.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <sstream>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto symbols_deadline = 10s;  // a debug build of a large program takes seconds

/// The part of a program's output that arrives in time.
std::string output_of(const std::string& program, std::vector<std::string> arguments) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const unique_fd out(ends[0]);
  unique_fd in(ends[1]);
  const unique_fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  auto child =
      process::spawn({program, std::move(arguments), {"LC_ALL=C"}, {{in.get(), 1}, {nowhere.get(), 2}}});
  if (!child) return {};
  in.reset();
  std::string text;
  const auto until = std::chrono::steady_clock::now() + symbols_deadline;
  while (true) {
    pollfd one{out.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(&one, 1, static_cast<int>(left.count())) <= 0) break;
    std::array<char, 4096> piece;
    const ssize_t bytes = ::read(out.get(), piece.data(), piece.size());
    if (bytes <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  process::signal_group(*child, SIGKILL);
  process::reap(*child, 2s);
  return text;
}

}  // namespace

std::string without_discriminator(const std::string& place) {
  return place.substr(0, place.find(" (discriminator "));
}

std::vector<std::string> name_frames(const std::vector<std::string>& frames) {
  std::vector<std::string> named = frames;
  const auto tool = process::find_program("addr2line");
  if (!tool) return named;
  std::map<std::string, std::vector<std::size_t>> of_module;
  std::vector<std::string> places;  // the frames without the function names that the dying process itself wrote
  for (std::size_t i = 0; i < frames.size(); ++i) {
    places.push_back(frames[i].substr(0, frames[i].find(" in ", frames[i].rfind("+0x"))));
    const std::size_t plus = places[i].rfind("+0x");
    if (plus != std::string::npos && places[i].front() == '/')
      of_module[places[i].substr(0, plus)].push_back(i);
  }
  for (const auto& [module, members] : of_module) {
    if (::access(module.c_str(), R_OK) != 0) continue;
    std::vector<std::string> arguments{"-C", "-f", "-s", "-e", module};
    for (const std::size_t i : members) arguments.push_back(places[i].substr(module.size() + 1));
    // addr2line prints two lines per frame: the function, then file:line.
    std::istringstream lines(output_of(*tool, std::move(arguments)));
    for (const std::size_t i : members) {
      std::string function;
      std::string place;
      if (!std::getline(lines, function) || !std::getline(lines, place)) break;
      // Without debug information, addr2line names the nearest exported function, however far away it is.
      if (function == "??" || place.starts_with("??")) continue;
      named[i] = fmt::format("{} at {}", function, without_discriminator(place));
    }
  }
  return named;
}

}  // namespace penstock::cli
