// How buffers go back to the ring: see batch_body.hpp.
#include "actors/gpu_owner/batch_body.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/units.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

// A capture may end, or a batch be parked by another thread, while the consumer waits for the next batch.
constexpr nanoseconds retry_while_parked = 1ms;
constexpr nanoseconds retry_when_none_is = 100ms;

}  // namespace

void batch_home::release(std::uint32_t buffer, stream_handle stream) {
  refuse_copies();
  const std::lock_guard hold(mutex_);
  if (!device_) refuse();
  value_or_throw(device_->release(buffer, stream));
  give_back_(buffer);
  give_back_parked();
}

void batch_home::release_or_park(std::uint32_t buffer) noexcept {
  if (process_.left()) return;
  const std::lock_guard hold(mutex_);
  if (!device_) return;  // nobody waits for the buffer
  parked_.push_back(buffer);
  give_back_parked();
}

gpu_owner::hand_over::taken batch_home::take_from(gpu_owner::hand_over& queue, nanoseconds patience) {
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
    const nanoseconds at_most = some_parked ? retry_while_parked : retry_when_none_is;
    if (auto taken = queue.take_until(std::chrono::steady_clock::now() + at_most)) return std::move(*taken);
    const steady_time now = std::chrono::steady_clock::now();
    if (some_free) {
      all_parked.restart(now);
    } else if (all_parked.is_over(now)) {
      throw error(
          {errc::usage,
           fmt::format(
               "no batch can come: all buffers ({}) belong to batches that were destroyed inside a stream "
               "capture, and it has not ended for {}. End the capture before next(), or release "
               "batches before it begins",
               buffers_, duration_for_people(patience)),
           0});
    }
  }
}

bool batch_home::give_back_parked() {
  while (device_ && !parked_.empty()) {
    // The first refusal stands for all: they would be recorded on the same stream.
    if (!device_->release(parked_.back(), stream_handle{})) return true;
    give_back_(parked_.back());
    parked_.pop_back();
  }
  return false;
}

}  // namespace penstock
