#include "tools/penstock/control/session_end.hpp"

#include "runtime/base/units.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/session_record.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/past/past_session.hpp"
#include "tools/penstock/session_link.hpp"
#include "tools/penstock/stop_signals.hpp"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto look_again_after = 20ms;
constexpr auto silent_for = 1s;  // after this time, say what the end waits for
constexpr auto told_again_after = 5s;
constexpr auto record_completed_within = 5s;

unique_fd open_process(pid_t pid) {
  if (pid <= 0) return unique_fd();  // the session is in another pid namespace
  return unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
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

nlohmann::ordered_json request_to_stop(bool now) {
  json order{{"verb", "stop"}, {"now", now}};
  if (const pid_t parent = ::getppid(); parent > 0) order["from"] = process_in_words(parent);  // 0: it is outside this container
  return order;
}

session_end::session_end(std::filesystem::path socket) : socket_(std::move(socket)) {
  const pid_t pid = control::process_behind(socket_);
  pid_ = pid;
  if (const auto record = live_record_of(socket_, pid)) record_ = record->path;
  process_ = open_process(pid);
  const auto facts = process::look_at(pid);
  if (!process_ || !facts) return;
  parent_ = open_process(facts->parent);
  // If the parent has changed meanwhile, the old parent's pid may belong to another process by now.
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
  return !connected && connected.error().code != errc::timed_out;  // after a timeout, the session is busy and not gone
}

bool session_end::wait_until(steady_time until) const {
  if (!is_over(until)) return false;
  wait_for_record(until);
  return true;
}

bool session_end::is_over(steady_time until) const {
  while (!socket_is_gone() && !has_a_successor()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(look_again_after);
  }
  return wait_for(process_, until) && wait_for(parent_, until);
}

/// Whether the next session of this name has taken over the socket, perhaps in the same process. If so, our record is no longer written,
/// and it has an end unless the session was killed.
bool session_end::has_a_successor() const {
  if (record_.empty() || control::is_written(record_)) return false;
  if (control::process_behind(socket_) != pid_) return true;
  const auto past = read_past(record_);
  return past && !past->has_no_end();
}

/// A session completes its record after it has closed its socket. The wait is bounded because a file system may not respond.
void session_end::wait_for_record(steady_time until) const {
  const auto longest = std::min<steady_time>(until, std::chrono::steady_clock::now() + record_completed_within);
  while (control::is_written(record_) && std::chrono::steady_clock::now() < longest) std::this_thread::sleep_for(look_again_after);
}

std::vector<awaited_end> session_end::awaited(steady_time until) const {
  if (socket_is_gone()) return {{"process", "the end: " + what_is_left()}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  const auto answer = control::ask(socket_, {{"verb", "status"}}, std::clamp<std::chrono::milliseconds>(left, 0ms, look_deadline));
  if (answer && answer->value("ok", false)) return awaited_ends(answer->at("result"));
  if (socket_is_gone()) return {};  // the session ended meanwhile
  const std::string suspended = if_suspended(pid_);
  return {{"session", suspended.empty() ? fmt::format("the session (pid {}), which does not answer", pid_) : "the end: " + suspended}};
}

bool session_end::wait_and_tell(steady_time until, bool quiet, const std::string& whose) const {
  if (quiet) return wait_until(until);
  std::set<std::string> told;
  auto silent_until = std::chrono::steady_clock::now() + silent_for;
  while (!is_over(std::min<steady_time>(until, silent_until))) {
    if (std::chrono::steady_clock::now() >= until) return false;
    for (const awaited_end& one : awaited(until)) {
      if (told.insert(one.what).second) say(fmt::format("{}waiting for {}", whose, one.words));
    }
    silent_until = std::chrono::steady_clock::now() + told_again_after;
  }
  wait_for_record(until);
  return true;
}

std::string session_end::what_is_left() const {
  if (!socket_is_gone()) return "the session is still stopping";
  if (!is_gone(process_, 0ns))
    return "the session is over, but its process has not ended: it may still write its report";
  return "the session is over, but the process that started it has not ended: it may still write its report";
}

}  // namespace penstock::cli
