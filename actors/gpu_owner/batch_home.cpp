// Returns buffers to the ring: see batch_body.hpp.
#include "actors/gpu_owner/batch_body.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/units.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

// How often a wait for the next batch checks whether parked buffers can be returned: a capture may end
// meanwhile, or another thread may park a buffer.
constexpr nanoseconds retry_while_parked = 1ms;
constexpr nanoseconds retry_when_none_is = 100ms;
constexpr nanoseconds between_calls_of_the_host = 50ms;

}  // namespace

void batch_home::release_after(std::uint32_t buffer, std::span<const stream_handle> streams) {
  refuse_copies();
  const std::lock_guard hold(mutex_);
  if (!device_) refuse();
  value_or_throw(device_->release_after(buffer, streams));
  give_back_(buffer);
  give_back_parked();
}

void batch_home::release_or_park(std::uint32_t buffer) noexcept {
  if (process_.left()) return;
  const std::lock_guard hold(mutex_);
  if (!device_) return;  // the session has closed and needs no buffer back
  parked_.push_back(buffer);
  give_back_parked();
}

gpu_owner::hand_over::taken batch_home::take_from(gpu_owner::hand_over& queue, nanoseconds patience,
                                                  const std::function<void()>& while_waiting) {
  const nanoseconds longest = while_waiting ? between_calls_of_the_host : retry_when_none_is;
  patient_deadline all_parked(patience, retry_when_none_is);
  all_parked.restart(std::chrono::steady_clock::now());
  while (true) {
    bool some_parked = false;
    bool some_free = false;
    {
      const std::lock_guard hold(mutex_);
      some_parked = give_back_parked();
      some_free = buffers_ == 0 || parked_.size() < buffers_;
    }
    const nanoseconds at_most = some_parked ? retry_while_parked : longest;
    if (auto taken = queue.take_until(std::chrono::steady_clock::now() + at_most)) return std::move(*taken);
    if (while_waiting) while_waiting();
    const steady_time now = std::chrono::steady_clock::now();
    if (some_free) {
      all_parked.restart(now);
    } else if (all_parked.is_over(now)) {
      throw error({errc::usage,
                   fmt::format("no batch can be delivered: all {} buffers belong to batches that were "
                               "destroyed during a stream capture, which has been open for {}. End the "
                               "capture before next(), or release batches before the capture begins",
                               buffers_, duration_for_people(patience)),
                   0});
    }
  }
}

bool batch_home::give_back_parked() {
  while (device_ && !parked_.empty()) {
    // If the device refuses one buffer, it would refuse the others, too: it records the release of each on
    // the same stream.
    if (!device_->release(parked_.back(), stream_handle{})) return true;
    give_back_(parked_.back());
    parked_.pop_back();
  }
  return false;
}

}  // namespace penstock
