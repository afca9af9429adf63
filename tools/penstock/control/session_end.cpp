#include "tools/penstock/control/session_end.hpp"

#include "runtime/base/units.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/process/process_facts.hpp"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto look_again_after = 20ms;

unique_fd open_process(pid_t pid) {
  if (pid <= 0) return unique_fd();  // in another pid namespace
  return unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// The process that listens at the peer's end.
pid_t listener_of(int connection) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

bool is_gone(const unique_fd& process, nanoseconds at_most) {
  if (!process) return true;
  pollfd one{process.get(), POLLIN, 0};
  const auto timeout =
      std::chrono::ceil<std::chrono::milliseconds>(std::clamp<nanoseconds>(at_most, 0ns, 1h));
  return ::poll(&one, 1, static_cast<int>(timeout.count())) > 0;
}

bool wait_for(const unique_fd& process, steady_time until) {
  while (!is_gone(process, until - std::chrono::steady_clock::now())) {
    if (std::chrono::steady_clock::now() >= until) return false;
  }
  return true;
}

}  // namespace

result<std::optional<std::chrono::milliseconds>> parse_timeout(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto time = parse_duration(text);
  if (!time) return refuse(errc::usage, "--timeout: {}", time.error().message);
  return std::chrono::ceil<std::chrono::milliseconds>(*time);
}

session_end::session_end(std::filesystem::path socket) : socket_(std::move(socket)) {
  const auto connected = control::connect_to(socket_);
  if (!connected) return;
  const pid_t pid = listener_of(connected->get());
  pid_ = pid;
  process_ = open_process(pid);
  const auto facts = process::look_at(pid);
  if (!process_ || !facts) return;
  parent_ = open_process(facts->parent);
  // If the parent has changed meanwhile, its number may belong to another process by now.
  const auto again = process::look_at(pid);
  if (!again || again->parent != facts->parent) parent_ = unique_fd();
}

void session_end::says(const nlohmann::ordered_json& answer) {
  const std::string what = answer.value("ends", "session");
  if (what != "parent") parent_ = unique_fd();
  if (what == "session") process_ = unique_fd();
}

bool session_end::socket_is_gone() const {
  const auto connected = control::connect_to(socket_);
  return !connected && connected.error().code != errc::timed_out;  // a timeout: busy, not gone
}

bool session_end::wait_until(steady_time until) const {
  while (!socket_is_gone()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(look_again_after);
  }
  return wait_for(process_, until) && wait_for(parent_, until);
}

std::string session_end::what_is_left() const {
  if (!socket_is_gone()) return "the session is still stopping";
  if (!is_gone(process_, 0ns))
    return "the session is over, but its process has not ended: it may still write its report";
  return "the session is over, but the process that started it has not ended: it may still write its report";
}

}  // namespace penstock::cli
