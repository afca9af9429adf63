#include "tools/penstock/host/hosts_by_ssh.hpp"

#include "runtime/base/shell_words.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/inherited_environment.hpp"
#include "tools/penstock/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <span>
#include <string_view>
#include <utility>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr int ssh_failed = 255;

// Runs in a POSIX shell on the other machine. $1 says whether there is a secret; the other arguments are the host's command. The secret is
// the first line of the input, so no command line contains it. It is passed on in a file that is removed before the host reads it. The
// input ends when the connection does.
constexpr std::string_view script = R"(umask 077
exec 3<&0
if [ "$1" = secret ]; then
  file=$(mktemp) || exit 1
  IFS= read -r secret <&3 && printf '%s\n' "$secret" >"$file"
  unset secret
  exec 4<"$file"
  rm -f "$file"
else
  exec 4</dev/null
fi
shift
"$@" 3<&- &
host=$!
{ cat <&3 >/dev/null; kill -TERM "$host" 2>/dev/null; } >/dev/null 2>&1 4<&- &
watch=$!
wait "$host"
code=$?
kill "$watch" 2>/dev/null
exit "$code")";

std::string remote_command(const hosts_by_ssh::settings& what) {
  std::string all = fmt::format("exec /bin/sh -c {} penstock-host {} {} host", shell_word(script), what.secret.empty() ? "none" : "secret",
                                what.command);
  for (const std::string& one : what.arguments) all += " " + shell_word(one);
  if (!what.secret.empty()) all += " --secret-file /proc/self/fd/4";
  return all;
}

}  // namespace

result<std::unique_ptr<hosts_by_ssh>> hosts_by_ssh::start(const settings& what) {
  if (what.secret.find('\n') != std::string::npos)
    return refuse(errc::config, "the hosts' secret has several lines, but only one line can be sent by ssh: make a secret "
                                "with `penstock secret`");
  auto program = process::find_program("ssh");
  if (!program) return tl::unexpected(std::move(program.error()));
  auto made = std::unique_ptr<hosts_by_ssh>(new hosts_by_ssh());
  for (const std::string& name : what.machines) {
    if (auto ok = made->add(*program, what, name); !ok) return tl::unexpected(std::move(ok.error()));
  }
  return made;
}

result<void> hosts_by_ssh::add(const std::string& program, const settings& what, const std::string& name) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return refuse_os(errc::system, errno, "making a pipe to ssh");
  const unique_fd theirs(ends[0]);
  unique_fd ours(ends[1]);
  // ssh must not ask for a password (BatchMode), because it runs in a background process group.
  process::spawn_request request{program,
                                 {"-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--", name, remote_command(what)},
                                 process::inherited_environment(),
                                 {{theirs.get(), 0}, {1, 1}, {2, 2}}};
  auto started = process::spawn(request);
  if (!started) return tl::unexpected(std::move(started.error()));
  machines_.push_back({name, std::move(*started), std::move(ours)});
  if (what.secret.empty()) return {};
  const std::string line = what.secret + "\n";  // one line, which the pipe can hold
  // Fails only if ssh has ended, which run() reports.
  static_cast<void>(write_all(machines_.back().input.get(), std::as_bytes(std::span(line))));
  return {};
}

hosts_by_ssh::~hosts_by_ssh() {
  leave(true);
  run();
}

int hosts_by_ssh::run() {
  int code = exit_ok;
  while (true) {
    std::vector<pollfd> look;
    std::vector<machine*> whose;
    for (machine& one : machines_) {
      if (one.over) continue;
      look.push_back({one.ssh.pidfd.get(), POLLIN, 0});
      whose.push_back(&one);
    }
    if (look.empty()) return code;
    ::poll(look.data(), look.size(), -1);
    for (std::size_t i = 0; i < look.size(); ++i) {
      if (look[i].revents == 0) continue;
      const int how = ended(*whose[i]);
      if (code == exit_ok) code = how;
    }
  }
}

int hosts_by_ssh::ended(machine& of) {
  const std::lock_guard hold(mutex_);
  of.over = true;
  of.input.reset();
  const auto report = process::reap(of.ssh, 1s);
  if (report && report->exited_with(0)) return exit_ok;
  if (!report || report->ending != process::exit_report::how::exited) {
    say(fmt::format("{}: ssh was killed", of.name));
    return exit_failed;
  }
  if (report->code == ssh_failed) {
    say(fmt::format("{}: ssh failed; try `ssh -o BatchMode=yes {} true`", of.name, of.name));
    return exit_failed;
  }
  say(fmt::format("{}: the host ended with exit {}", of.name, report->code));
  return report->code;
}

void hosts_by_ssh::leave(bool at_once) {
  const std::lock_guard hold(mutex_);
  for (machine& one : machines_) {
    if (one.over) continue;
    one.input.reset();
    if (at_once) process::signal_group(one.ssh, SIGTERM);
  }
}

}  // namespace penstock::cli
