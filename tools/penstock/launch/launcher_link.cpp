#include "tools/penstock/launch/launcher_link.hpp"

#include "actors/session/launcher_news.hpp"
#include "actors/session/pulse.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr auto tell_every = 50ms;
constexpr std::chrono::nanoseconds line_every_max = 500ms;
constexpr int lines_in_lost_after = 8;  // minimum
constexpr auto start_patience = 10s;

/// The channel; empty if there is none, or if the variable is left over from another process.
unique_fd channel_of_environment() {
  const char* const value = std::getenv(launch_channel_variable);
  if (value == nullptr) return {};
  const std::string_view text(value);
  int fd = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), fd);
  ::unsetenv(launch_channel_variable);
  struct stat facts {};
  if (parsed.ec != std::errc{} || fd <= STDERR_FILENO || ::fstat(fd, &facts) != 0 || !S_ISSOCK(facts.st_mode))
    return {};
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return unique_fd(fd);
}

/// `none` also after a failure, which the exit code reports.
group_end_word end_of_group(const Session& session) {
  const auto group = session.status().group;
  if (group && group->outcome == run_outcome::finished) return group_end_word::finished;
  return group && group->outcome == run_outcome::stopped ? group_end_word::stopped : group_end_word::none;
}

}  // namespace

launcher_link::launcher_link() : channel_(channel_of_environment()) {}

result<rank_start> launcher_link::where_to_begin() {
  const nanoseconds turn = look_interval(start_patience, start_patience);
  patient_deadline until(start_patience, turn);  // the launcher may have been suspended with this process
  until.restart(clock::now());
  std::size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    pollfd one{channel_.get(), POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(turn).count()));
    if (ready <= 0 && !until.is_over(clock::now())) continue;
    if (ready <= 0)
      return refuse(errc::timed_out, "the launcher has not sent the position at which this rank begins");
    char piece[4096];
    const ssize_t n = ::recv(channel_.get(), piece, sizeof piece, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return refuse(errc::system, "the launcher ended before it sent the position at which this rank begins");
    received_.append(piece, static_cast<std::size_t>(n));
    if (received_.size() > progress_line_max) break;
  }
  const std::string line = received_.substr(0, end);
  received_.erase(0, end == std::string::npos ? end : end + 1);
  return parse_start(line);
}

std::vector<lost_process_report> launcher_link::lost() {
  char piece[4096];
  for (ssize_t n = 0; (n = ::recv(channel_.get(), piece, sizeof piece, MSG_DONTWAIT)) > 0;) received_.append(piece, static_cast<std::size_t>(n));
  std::vector<lost_process_report> all;
  for (std::size_t end = 0; (end = received_.find('\n')) != std::string::npos; received_.erase(0, end + 1)) {
    for (lost_process_report& one : parse_lost(received_.substr(0, end)).value_or(std::vector<lost_process_report>())) all.push_back(std::move(one));
  }
  return all;
}

bool launcher_link::send(const std::string& line) {
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(channel_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

// ---- the thread -------------------------------------------------------------------------------------------

position_teller::position_teller(launcher_link& launcher, const Session& session,
                                 std::chrono::nanoseconds lost_after, tells what)
    : launcher_(launcher),
      session_(session),
      what_(what),
      line_every_(std::min<std::chrono::nanoseconds>(lost_after / lines_in_lost_after, line_every_max)),
      thread_([this] { run(); }) {}

position_teller::~position_teller() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
  told_at_ = {};
  tell();
}

void position_teller::run() {
  const auto pace = std::min<std::chrono::nanoseconds>(tell_every, line_every_);
  std::unique_lock lock(mutex_);
  while (!over_) {
    lock.unlock();
    if (const auto lost = launcher_.lost(); !lost.empty()) session::processes_lost(session_, lost);
    tell();
    lock.lock();
    wake_.wait_for(lock, pace, [this] { return over_; });
  }
}

/// Takes the state first: the epochs may then be ahead of it, never behind.
void position_teller::tell() {
  rank_progress progress;
  run_report report;
  const bool due = clock::now() - told_at_ >= line_every_;
  try {
    progress.state = session_.state();
    if (progress.state == told_ || what_ == tells::life) progress.state.clear();
    progress.group = end_of_group(session_);
    if (!due && progress.state.empty() && progress.group == end_told_) return;
    end_told_ = progress.group;
    if (what_ == tells::position) report = session_.report();
  } catch (const error&) {  // the session did not answer in time: the line contains only the count
    if (!due) return;
    progress.state.clear();
  }
  progress.batches = report.batches;
  if (!progress.state.empty()) told_ = progress.state;
  const auto epochs = telemetry::as_json(report)["epochs"];
  for (std::size_t i = epochs_told_; i < report.epochs.size(); ++i) {
    // Only the last line has the state, so that the launcher knows all earlier epochs when a rank resumes from it.
    if (progress.epochs.size() == epochs_in_a_line) {
      if (!launcher_.send(line_of({progress.batches, {}, progress.epochs}))) return;
      progress.epochs.clear();
    }
    progress.epochs.push_back(epochs[i]);
    if (report.epochs[i].complete && i == epochs_told_) ++epochs_told_;
  }
  progress.beats = beats();
  launcher_.send(line_of(progress));
  told_at_ = clock::now();
}

/// While there are no actors, each line counts as a sign of life.
std::uint64_t position_teller::beats() {
  if (const auto of_actors = session::beats_of(session_)) {
    beats_of_actors_ = *of_actors;
  } else {
    ++lines_without_actors_;
  }
  return beats_of_actors_ + lines_without_actors_;
}

}  // namespace penstock::cli
