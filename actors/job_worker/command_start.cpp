#include "actors/job_worker/command_start.hpp"

#include "runtime/base/shell_words.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/path_lookup.hpp"

#include <penstock/job.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

extern char** environ;  // NOLINT: no POSIX header declares it

namespace penstock::job_worker {
namespace {

constexpr std::size_t shown_of_a_command = 200;
constexpr const char* shell = "/bin/sh";
constexpr std::size_t looked_at_of_a_script = 256;

[[noreturn]] void cannot(const protocol::command_job& job, const std::string& what, int trouble) {
  throw job_exception(
      "command", os_failure(errc::system, trouble, fmt::format("{} '{}'", what, shown(job))).message, {});
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    all.emplace_back(*variable);
  return all;
}

std::string_view value_in(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string_view one : environment) {
    if (one.starts_with(name) && one.substr(name.size()).starts_with('=')) return one.substr(name.size() + 1);
  }
  return {};
}

/// A name with a slash is a path; any other is looked up in PATH.
std::string program_of(const protocol::command_job& job, const std::vector<std::string>& environment) {
  const std::string& name = job.arguments.front();
  if (name.find('/') != std::string::npos) return name;
  std::string_view path = value_in(environment, "PATH");
  if (path.empty()) path = "/bin:/usr/bin";
  if (auto file = process::found_in_path(path, name)) return std::move(*file);
  throw job_exception("command", fmt::format("there is no program '{}' in PATH", printable(name)), {});
}

/// Whether a file that the kernel cannot execute may be a script without `#!`, rather than a program for
/// another machine.
bool may_be_script(const std::string& file) {
  const unique_fd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, looked_at_of_a_script> begin;
  const ssize_t bytes = opened ? ::read(opened.get(), begin.data(), begin.size()) : -1;
  return bytes >= 0 && std::find(begin.begin(), begin.begin() + bytes, '\0') == begin.begin() + bytes;
}

}  // namespace

std::string shown(const protocol::command_job& job) {
  return shortened(printable(shell_words(job.arguments)), shown_of_a_command);
}

std::vector<std::string> changed_environment(std::vector<std::string> base,
                                             const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    const std::string_view name = std::string_view(change).substr(0, change.find('='));
    std::erase_if(base, [name](std::string_view one) { return one.substr(0, one.find('=')) == name; });
    if (name.size() < change.size()) base.push_back(change);
  }
  return base;
}

process::child start_command(const protocol::command_job& job, captured_output& out, captured_output& err,
                             group_watchdog::entry& group) {
  const auto file_of = [&job](const char* name) {
    return job.output_files.empty() ? std::string() : fmt::format("{}.{}", job.output_files, name);
  };
  for (const auto& [output, name] : {std::pair(&out, "stdout"), std::pair(&err, "stderr")}) {
    const std::string file = file_of(name);
    const std::string what =
        file.empty() ? "making a pipe for" : fmt::format("creating '{}' for", printable(file));
    if (const int trouble = output->open(file); trouble != 0) cannot(job, what, trouble);
  }
  process::spawn_request request;
  request.environment = changed_environment(own_environment(), job.environment);
  request.program = program_of(job, request.environment);
  request.name = job.arguments.front();
  request.arguments = {job.arguments.begin() + 1, job.arguments.end()};
  request.fds = {{out.command_end(), STDOUT_FILENO}, {err.command_end(), STDERR_FILENO}};
  request.announce = &group;
  auto started = process::spawn(request);
  if (!started && started.error().os_code == ENOEXEC && may_be_script(request.program)) {
    request.arguments.insert(request.arguments.begin(), std::exchange(request.program, shell));
    request.name = shell;
    started = process::spawn(request);
  }
  if (!started) {
    group = 0;
    cannot(job, "executing", started.error().os_code);
  }
  out.close_command_end();
  err.close_command_end();
  return std::move(*started);
}

}  // namespace penstock::job_worker
