#include "runtime/nccl/rank_communicator.hpp"

#include "runtime/base/patient_wait.hpp"

#include <penstock/error.hpp>

#include <fmt/core.h>

#include <chrono>
#include <limits>
#include <thread>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;

// How often to poll NCCL.
constexpr nanoseconds while_it_moves = 2ms;
constexpr nanoseconds while_it_works = 50ms;
constexpr auto while_a_call_is_taken = 50us;

// NCCL's errors for wrong calls. The communicator stays usable after them.
constexpr int invalid_argument = 4;
constexpr int invalid_usage = 5;

}  // namespace

// ---- orders -------------------------------------------------------------------------------------------------

void rank_communicator::order_making(std::uint64_t number, std::string id) {
  const std::lock_guard hold(mutex_);
  book_.make(number, std::move(id), clock_.look(std::chrono::steady_clock::now()));
  changed_.notify_all();
}

void rank_communicator::order_abort(std::uint64_t number) {
  const std::lock_guard hold(mutex_);
  book_.abort(number, clock_.look(std::chrono::steady_clock::now()));
  changed_.notify_all();
}

void rank_communicator::order_end() {
  const std::lock_guard hold(mutex_);
  ended_ = true;
  constexpr auto all = std::numeric_limits<std::uint64_t>::max();
  if (communicator_ || book_.pending()) {
    book_.failed(book_.number(), "this rank's GPU owner is ending");
    book_.abort(all, clock_.look(std::chrono::steady_clock::now()));
  }
  changed_.notify_all();
}

void rank_communicator::check_deadlines(steady_time now) {
  const std::lock_guard hold(mutex_);
  if (clock_.look(now) < book_.next_deadline()) return;
  collect(now);
  changed_.notify_all();
}

// ---- the keeper's thread ------------------------------------------------------------------------------------

/// Call with mutex_ held, so that states are reported in order.
void rank_communicator::collect(steady_time now) {
  for (communicator_command& c : book_.advance(clock_.look(now))) {
    if (const auto* one = std::get_if<tell_communicator>(&c)) {
      told(one->state);
    } else if (const auto* last = std::get_if<replace_owner>(&c)) {
      stuck(last->reason);
    } else {
      to_do_.push_back(std::move(c));
    }
  }
}

std::optional<communicator_command> rank_communicator::next_command(steady_time now) {
  const std::lock_guard hold(mutex_);
  collect(now);
  if (to_do_.empty()) return std::nullopt;
  auto next = std::move(to_do_.front());
  to_do_.pop_front();
  return next;
}

void rank_communicator::carry_out(const begin_making& order) {
  auto made = device::nccl_communicator::begin(library_, order.id, rank_, world_size_);
  const std::lock_guard hold(mutex_);
  if (!made) return book_.failed(order.number, made.error().message);
  communicator_ = std::move(*made);
}

void rank_communicator::carry_out(const begin_abort& order) {
  std::unique_ptr<device::nccl_communicator> ended;
  {
    const std::lock_guard hold(mutex_);
    ended = std::move(communicator_);
  }
  if (ended) ended->abort();
  const std::lock_guard hold(mutex_);
  book_.aborted(order.number);
  changed_.notify_all();
}

void rank_communicator::watch_progress() {
  const std::lock_guard hold(mutex_);
  if (!communicator_ || (!book_.usable() && !book_.pending())) return;
  const auto state = communicator_->state();
  if (!state) {
    book_.failed(book_.number(), state.error().message);
  } else if (*state) {
    book_.made(book_.number());
  }
  changed_.notify_all();
}

steady_time rank_communicator::look(steady_time now) {
  watch_progress();
  while (const auto command = next_command(now)) {
    if (const auto* make = std::get_if<begin_making>(&*command)) carry_out(*make);
    if (const auto* end = std::get_if<begin_abort>(&*command)) carry_out(*end);
  }
  const std::lock_guard hold(mutex_);
  if (book_.usable()) return now + while_it_works;
  return book_.pending() || book_.next_deadline() != never ? now + while_it_moves : never;
}

// ---- the program's thread -----------------------------------------------------------------------------------

void rank_communicator::throw_lost(std::uint64_t number) {
  throw error({errc::group_failed,
               fmt::format("communicator {} is lost: another rank was lost, or NCCL reported an error",
                           communicator_ordinal(number)),
               0});
}

std::uint64_t rank_communicator::number() const {
  const std::lock_guard hold(mutex_);
  return book_.number();
}

bool rank_communicator::is_lost(std::uint64_t number) const {
  const std::lock_guard hold(mutex_);
  return !book_.usable() || book_.number() != number;
}

Communicator::entry rank_communicator::enter() {
  std::unique_lock hold(mutex_);
  // Wait for the group's first communicator, or the next one if it has been ordered.
  const auto decided = [&] { return ended_ || book_.usable() || (book_.number() != 0 && !book_.pending()); };
  if (!is_done_within(changed_, hold, limits_.make_timeout, decided) || !book_.open_scope())
    throw_lost(book_.number());
  return {communicator_->handle(), book_.number()};
}

void rank_communicator::leave() noexcept {
  const std::lock_guard hold(mutex_);
  book_.close_scope();
  changed_.notify_all();
}

void* rank_communicator::function(const char* name) {
  if (void* const found = library_->function(name)) return found;
  throw error({errc::sink, fmt::format("{} has no function {}", library_->path(), name), 0});
}

/// A scope is open during this call, so the communicator is not aborted meanwhile.
void rank_communicator::settle(int status, const char* what) {
  if (status == invalid_argument || status == invalid_usage)
    throw error({errc::sink, fmt::format("{}: {}", what, library_->text_of(status)), 0});
  while (true) {
    {
      const std::lock_guard hold(mutex_);
      if (!book_.usable()) throw_lost(book_.number());
      const auto taken = communicator_->state();
      if (!taken) book_.failed(book_.number(), fmt::format("{}: {}", what, taken.error().message));
      if (taken && *taken && status != device::nccl_abi::success && status != device::nccl_abi::in_progress)
        book_.failed(book_.number(), fmt::format("{}: {}", what, library_->text_of(status)));
      if (!book_.usable()) throw_lost(book_.number());
      if (taken && *taken) return;
    }
    std::this_thread::sleep_for(while_a_call_is_taken);
  }
}

}  // namespace penstock::group
