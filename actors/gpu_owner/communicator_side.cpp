#include "actors/gpu_owner/communicator_side.hpp"

#include "runtime/base/log.hpp"

#include <fmt/core.h>

#include <thread>
#include <utility>

namespace penstock::gpu_owner {
namespace {

using namespace std::chrono_literals;

// How often the library is asked.
constexpr nanoseconds while_it_moves = 2ms;
constexpr nanoseconds while_it_works = 50ms;
constexpr auto while_a_call_is_taken = 50us;

// NCCL's errors that say that the caller is wrong, not that something broke.
constexpr int invalid_argument = 4;
constexpr int invalid_usage = 5;

[[noreturn]] void throw_lost(std::uint64_t number) {
  throw error(
      {errc::group_failed,
       fmt::format("communicator {} is lost: another rank was, or it had an error", number & 0xffffffffU),
       0});
}

}  // namespace

// ---- the owner's thread -------------------------------------------------------------------------------------

bool communicator_side::open_library(bool on_host) {
  if (library_) return true;
  auto opened = device::nccl_library::open();
  if (!opened) {
    around_.news->failed(opened.error());
    return false;
  }
  if (on_host && !(*opened)->works_on_host()) {
    around_.news->failed(
        {errc::config,
         "[group] communicator = \"nccl\" needs a GPU for each rank, and this one has the host device", 0});
    return false;
  }
  log::info("group", "NCCL {} ({})", (*opened)->version_text(), (*opened)->path());
  library_ = std::move(*opened);
  return true;
}

void communicator_side::draw_id(std::uint64_t number) {
  const auto id = library_->draw_id();
  if (!id) return around_.news->failed(id.error());
  around_.news->communicator_drawn(number, *id);
}

void communicator_side::follow(const communicate& order, bool on_host) {
  using act = communicate::act;
  if (order.what == act::agreed || order.what == act::free) return;
  if (order.what != act::abort && !open_library(on_host)) return;
  if (order.what == act::draw_id) return draw_id(order.number);
  const steady_time now = std::chrono::steady_clock::now();
  const std::lock_guard hold(mutex_);
  if (order.what == act::make) book_.make(order.number, order.id, now);
  if (order.what == act::abort) book_.abort(order.number, now);
  changed_.notify_all();
}

void communicator_side::begin(const group::begin_making& order) {
  auto made = device::nccl_communicator::begin(library_, order.id, around_.rank, around_.world_size);
  const std::lock_guard hold(mutex_);
  if (!made) return book_.failed(order.number, made.error().message);
  communicator_ = std::move(*made);
}

void communicator_side::abort(std::uint64_t number) {
  std::unique_ptr<device::nccl_communicator> ended;
  {
    const std::lock_guard hold(mutex_);
    ended = std::move(communicator_);
  }
  if (ended) ended->abort();
  const std::lock_guard hold(mutex_);
  book_.aborted(number);
  changed_.notify_all();
}

void communicator_side::watch_progress() {
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

steady_time communicator_side::look(steady_time now) {
  watch_progress();
  for (bool more = true; more;) {
    std::vector<group::communicator_command> orders;
    {
      const std::lock_guard hold(mutex_);
      orders = book_.advance(now);
    }
    more = !orders.empty();
    for (const group::communicator_command& c : orders) {
      if (const auto* make = std::get_if<group::begin_making>(&c)) begin(*make);
      if (const auto* end = std::get_if<group::begin_abort>(&c)) abort(end->number);
      if (const auto* told = std::get_if<group::tell_communicator>(&c))
        around_.news->communicator_changed(told->state);
      if (const auto* stuck = std::get_if<group::replace_owner>(&c))
        around_.news->communicator_stuck(stuck->reason);
    }
  }
  const std::lock_guard hold(mutex_);
  if (book_.usable()) return now + while_it_works;
  return book_.pending() || book_.next_deadline() != never ? now + while_it_moves : never;
}

// ---- the program's thread -----------------------------------------------------------------------------------

bool communicator_side::wait_until_usable(nanoseconds at_most) {
  std::unique_lock hold(mutex_);
  return changed_.wait_for(hold, at_most, [&] { return book_.usable(); });
}

std::uint64_t communicator_side::number() const {
  const std::lock_guard hold(mutex_);
  return book_.number();
}

bool communicator_side::is_lost(std::uint64_t number) const {
  const std::lock_guard hold(mutex_);
  return !book_.usable() || book_.number() != number;
}

bool communicator_side::wait_until_gone(nanoseconds at_most) {
  std::unique_lock hold(mutex_);
  return changed_.wait_for(hold, at_most, [&] { return !communicator_; });
}

Communicator::entry communicator_side::enter() {
  std::unique_lock hold(mutex_);
  // Of a group that is about to have one.
  const auto decided = [&] { return book_.usable() || (book_.number() != 0 && !book_.pending()); };
  if (!changed_.wait_for(hold, around_.limits.make_timeout, decided) || !book_.open_scope())
    throw_lost(book_.number());
  return {communicator_->handle(), book_.number()};
}

void communicator_side::leave() noexcept {
  const std::lock_guard hold(mutex_);
  book_.close_scope();
}

void* communicator_side::function(const char* name) {
  if (void* const found = library_->function(name)) return found;
  throw error({errc::sink, fmt::format("{} has no function {}", library_->path(), name), 0});
}

/// In an open scope, so the communicator stays.
void communicator_side::settle(int status, const char* what) {
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

}  // namespace penstock::gpu_owner
