#include "actors/child/child.hpp"

#include "actors/protocol/messages.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/read_time.hpp"
#include "runtime/process/process_facts.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>

namespace penstock::child {
namespace {

constexpr std::chrono::milliseconds heartbeat_interval{50};
constexpr std::chrono::seconds last_message_deadline{1};

bool is_socket(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode);
}

}  // namespace

bool has_session() {
  static const bool found = is_socket(protocol::child_fd::link);
  return found;
}

bool started_by_a_session(const char* what_this_is) {
  if (!has_session()) {
    std::fprintf(stderr, "This is %s. A penstock session starts it; see `penstock help run`.\n",
                 what_this_is);
    return false;
  }
  // Programs that we start must not inherit these descriptors; otherwise the session would not notice our
  // death. The range includes `parcels`, which has the same number as `index`.
  for (int fd = protocol::child_fd::link; fd < protocol::child_fd::index + protocol::child_fd::indexes_max;
       ++fd)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return true;
}

std::vector<int> indexes(std::size_t count) {
  std::vector<int> all(std::max<std::size_t>(count, 1));
  std::iota(all.begin(), all.end(), protocol::child_fd::index);
  return all;
}

void prefer_as_oom_victim() noexcept {
  // The highest score, as if the process used all memory. Among workers the kernel then picks the largest.
  constexpr std::string_view score = "1000";
  const unique_fd file(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file) static_cast<void>(!::write(file.get(), score.data(), score.size()));
}

void leave_sigterm_to_the_host() noexcept {
  if (std::getenv("PENSTOCK_ON_HOST") == nullptr) return;  // NOLINT(concurrency-mt-unsafe): no thread has started
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
}

heartbeat::heartbeat() : guard_(protocol::child_fd::lifeline, heartbeat_interval, [this] { beat(); }) {}

void heartbeat::beat() {
  if (auto* page = page_.load(std::memory_order_acquire)) page->beat(process::own_rss_bytes(), reads_since());
}

void heartbeat::adopt(std::uint32_t page) {
  if (storage_) return;
  auto mapped = arena::flight_writer::map(protocol::child_fd::flight, page);
  if (!mapped) return;
  storage_ = std::make_unique<arena::flight_writer>(std::move(*mapped));
  storage_->beat(process::own_rss_bytes());  // the process may die before the next heartbeat
  page_.store(storage_.get(), std::memory_order_release);
}

void leave(int exit_code, const std::function<void(std::function<void()>)>& when_sent) {
  const auto sent = std::make_shared<std::promise<void>>();
  when_sent([sent] { sent->set_value(); });
  static_cast<void>(is_ready_within(sent->get_future(), last_message_deadline));
  std::fflush(nullptr);
  ::_exit(exit_code);
}

}  // namespace penstock::child
