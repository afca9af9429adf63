#include "runtime/nccl/program_communicator.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/units.hpp"

#include <penstock/error.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;

constexpr auto looked_every = 50ms;
constexpr auto woken_at_least_every = 1h;

steady_time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

program_communicator::program_communicator(deps deps)
    : rank_communicator(deps.rank, deps.world_size, deps.limits), deps_(std::move(deps)) {}

result<std::shared_ptr<program_communicator>> program_communicator::open(deps deps) {
  const auto local_rank = deps.local_rank;
  std::shared_ptr<program_communicator> made(new program_communicator(std::move(deps)));
  auto library = device::nccl_library::open();
  if (!library || !(*library)->works_on_host()) {
    auto gpu = program_gpu::find(local_rank);
    if (!gpu) return tl::unexpected(std::move(gpu.error()));
    made->gpu_ = std::move(*gpu);
  }
  if (!library) return tl::unexpected(std::move(library.error()));
  log::info("group", "NCCL {} ({})", (*library)->version_text(), (*library)->path());
  made->use(std::move(*library));
  return made;
}

// ---- orders: program_group's I/O thread ---------------------------------------------------------------------

void program_communicator::report_to(communicator_listener* listener) {
  const std::lock_guard hold(mutex_);
  listener_ = listener;
}

void program_communicator::draw(std::uint64_t number) {
  {
    const std::lock_guard hold(mutex_);
    to_draw_ = number;
  }
  wake();
}

void program_communicator::make(std::uint64_t number, const std::string& id) {
  order_making(number, id);
  wake();
}

void program_communicator::abort(std::uint64_t number) {
  order_abort(number);
  wake();
}

void program_communicator::close() {
  {
    const std::lock_guard hold(mutex_);
    if (std::exchange(closed_, true) || !started_) return;
  }
  order_abort(std::numeric_limits<std::uint64_t>::max());
  wake();
}

/// The thread starts with the first order.
void program_communicator::wake() {
  const std::lock_guard hold(mutex_);
  ordered_ = true;
  changed_.notify_all();
  if (std::exchange(started_, true)) return;
  if (!thread_.post([self = shared_from_this()] { self->run(); })) stuck("its thread cannot be started");
}

bool program_communicator::wait_until_gone(steady_time until) {
  const auto patience_left = [this] {
    const std::lock_guard hold(mutex_);
    const steady_time ran = clock_.look(now());
    gone_by_ = std::min<steady_time>(gone_by_, ran + 2 * deps_.limits.abort_timeout + looked_every);
    return stuck_.empty() ? std::max<nanoseconds>(gone_by_ - ran, 0ns) : 0ns;
  };
  const nanoseconds left = std::max<nanoseconds>(std::min<nanoseconds>(until - now(), patience_left()), 0ns);
  const bool idle = thread_.wait_until_idle(std::chrono::ceil<std::chrono::milliseconds>(left));
  if (!idle && patience_left() > 0ns) return false;
  if (!thread_.stop_within(idle ? process::side_thread::patience : 0ms))
    log::warn("group", "abandoning a communicator that cannot be aborted");
  return true;
}

// ---- its own thread -----------------------------------------------------------------------------------------

void program_communicator::run() {
  gpu_.select();
  std::unique_lock hold(mutex_);
  while (true) {
    ordered_ = false;
    const auto drawn = std::exchange(to_draw_, std::nullopt);
    hold.unlock();
    if (drawn) draw_id(*drawn);
    const steady_time next = look(now());
    hold.lock();
    if (closed_ && (!stuck_.empty() || (!communicator_ && next == never))) return;
    changed_.wait_until(hold, std::min<steady_time>(next, now() + woken_at_least_every),
                        [&] { return ordered_; });
  }
}

void program_communicator::draw_id(std::uint64_t number) {
  const auto id = library()->draw_id();
  const std::lock_guard hold(mutex_);
  if (!id) return stuck(id.error().message);
  if (listener_ != nullptr) listener_->communicator_drawn(number, *id);
}

void program_communicator::told(const communicator_state& state) {
  if (!state.cause.empty()) trouble_ = state.cause;
  if (listener_ != nullptr) listener_->communicator_changed(state);
}

void program_communicator::stuck(const std::string& why) {
  stuck_ = why;
  changed_.notify_all();
  if (listener_ != nullptr) listener_->communicator_failed(why);
}

// ---- the program's thread -----------------------------------------------------------------------------------

Communicator::entry program_communicator::enter() {
  patient_deadline waited(deps_.patience, looked_every);
  waited.restart(now());
  while (true) {
    deps_.check();
    {
      std::unique_lock hold(mutex_);
      if (closed_) break;
      if (!stuck_.empty()) throw error({errc::group_failed, stuck_, 0});
      if (used_ != told_lost_ && (!book_.usable() || book_.number() != used_)) {
        told_lost_ = used_;
        throw_lost(used_);
      }
      if (book_.open_scope()) {
        used_ = book_.number();
        return {communicator_->handle(), used_};
      }
      if (waited.is_over(now())) {
        std::string text =
            fmt::format("the ranks have had no communicator for {}", duration_as_config(deps_.patience));
        if (!trouble_.empty()) text += fmt::format("; the last one failed: {}", trouble_);
        throw error({errc::timed_out, std::move(text), 0});
      }
      changed_.wait_for(hold, looked_every, [&] { return book_.usable() || closed_ || !stuck_.empty(); });
    }
    if (deps_.while_waiting) deps_.while_waiting();
  }
  deps_.check();
  throw error({errc::group_failed, "the group is over", 0});
}

void program_communicator::settle(int status, const char* what) {
  try {
    rank_communicator::settle(status, what);
  } catch (const error&) {
    {
      const std::lock_guard hold(mutex_);
      if (book_.usable()) throw;  // NCCL rejected the call; the communicator is intact
      told_lost_ = used_;
    }
    wake();
    deps_.check();
    throw;
  }
}

}  // namespace penstock::group
