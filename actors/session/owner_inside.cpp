#include "actors/session/owner_inside.hpp"

#include "actors/session/owner_life.hpp"
#include "actors/supervisor/owner_process.hpp"
#include "actors/supervisor/owner_rules.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/units.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <future>
#include <system_error>

namespace penstock::session {
namespace {

using namespace std::chrono_literals;

constexpr auto time_to_close = 2s;

// The keeper has already given the owner its time to stop. A healthy owner leaves within least_patience.
constexpr nanoseconds patience_at_the_end = 2s;
constexpr nanoseconds least_patience = 100ms;

result<unique_fd> copy_of(int fd) {
  unique_fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return refuse_os(errc::system, errno, "copying a descriptor for the GPU owner");
  return copy;
}

}  // namespace

void owner_inside::start(std::uint32_t incarnation) {
  boost::asio::post(io_.context(),
                    [self = shared_from_this(), incarnation] { self->start_now(incarnation); });
}

void owner_inside::start_now(std::uint32_t incarnation) {
  if (shut_down_) return;
  if (auto ok = try_start(incarnation); !ok)
    tell_(supervisor::owner_refused{incarnation, std::move(ok.error())});
}

result<void> owner_inside::try_start(std::uint32_t incarnation) {
  auto ends = protocol::make_link_pair();
  if (!ends) return tl::unexpected(std::move(ends.error()));
  auto arena = copy_of(deps_.arena);
  if (!arena) return tl::unexpected(std::move(arena.error()));
  auto flights = copy_of(deps_.flights);
  if (!flights) return tl::unexpected(std::move(flights.error()));
  // Only called until be_quiet(), while this object and its io thread exist.
  const auto ended = [this, incarnation](const owner_life::end& how) {
    boost::asio::post(io_.context(), [self = shared_from_this(), incarnation, how] {
      self->on_end(incarnation, how.code, how.last_words, how.left_behind);
    });
  };
  const auto life = std::make_shared<owner_life>(
      owner_life::deps{std::move(ends->second), std::move(*arena), std::move(*flights),
                               supervisor::waits_of_an_abort * deps_.abort_timeout + time_to_close, ended});
  protocol::owner_link::callbacks calls;
  calls.received = [this, incarnation](protocol::from_owner&& message) {
    tell_(supervisor::owner_spoke{incarnation, std::move(message)});
  };
  calls.closed = [this, incarnation](const std::string& reason) {
    tell_(supervisor::owner_lost_link{incarnation, reason});
  };
  calls.unasked_max = supervisor::owner_messages_unasked;
  running now{incarnation,
              life,
              {},
              protocol::owner_link::make(io_.context(), std::move(ends->first), std::move(calls))};
  try {
    const all_signals_blocked quiet;
    now.thread = std::thread([life] { life->run(); });
  } catch (const std::system_error& e) {
    return refuse(errc::system, "starting the GPU owner's thread: {}", e.what());
  }
  tell_(supervisor::owner_started{incarnation, ::getpid(), now.link});
  now.link->start();
  running_.emplace(std::move(now));
  return {};
}

void owner_inside::on_end(std::uint32_t incarnation, int code, std::optional<failure> last_words,
                          bool left_behind) {
  if (!running_ || running_->incarnation != incarnation) return;
  // Acknowledgements that arrived before the end still count.
  running_->link->drain();
  running_->link->close();
  if (left_behind) {
    running_->thread.detach();
  } else {
    running_->thread.join();  // the report of its end was its last action
  }
  if (last_words) {
    tell_(supervisor::owner_spoke{incarnation,
                                  protocol::worker_gives_up{code, static_cast<std::uint8_t>(last_words->code),
                                                            std::move(last_words->message)}});
  }
  tell_(supervisor::owner_exited{incarnation, {::getpid(), process::exit_report::how::exited, code}, {}});
  running_.reset();
}

void owner_inside::signal(std::uint32_t incarnation, int number) {
  if (number == SIGCONT) return;
  boost::asio::post(io_.context(), [self = shared_from_this(), incarnation] {
    if (self->running_ && self->running_->incarnation == incarnation) self->running_->life->ask_to_leave();
  });
}

void owner_inside::shut_down(nanoseconds at_most) {
  std::promise<std::optional<running>> last;
  boost::asio::post(io_.context(), [&] {
    shut_down_ = true;
    if (running_) {
      running_->life->be_quiet();
      running_->link->close();
    }
    tell_ = {};
    last.set_value(std::exchange(running_, std::nullopt));
  });
  auto left = last.get_future().get();
  if (!left) return;
  left->life->ask_to_leave();
  const nanoseconds patience = std::clamp(at_most, least_patience, patience_at_the_end);
  if (left->life->wait_until_gone(patience)) return left->thread.join();
  log::warn("gpu", "a device program has not returned for {}: its threads are abandoned",
            duration_for_people(patience));
  left->thread.detach();
}

}  // namespace penstock::session
