#include "actors/session/session_body.hpp"
#include "runtime/base/stage_range.hpp"

#include <caf/send.hpp>

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

// "For ever", to who asks for more: a deadline further away overflows the clock.
constexpr std::chrono::milliseconds longest_run = std::chrono::hours(24 * 365 * 10);

/// Two threads in next() would each get half a stream.
class only_taker {
 public:
  explicit only_taker(std::atomic<bool>& taken) : taken_(taken) {
    if (taken_.exchange(true))
      throw error({errc::usage, "two threads take batches of one session at the same time", 0});
  }
  ~only_taker() { taken_ = false; }
  only_taker(const only_taker&) = delete;
  only_taker& operator=(const only_taker&) = delete;

 private:
  std::atomic<bool>& taken_;
};

}  // namespace

std::optional<Batch> Session::body::next() {
  const only_taker here(taking_);
  ++iteration_;
  return take();
}

std::optional<Batch> Session::body::next_of(std::uint64_t epoch, std::uint64_t& iteration) {
  const only_taker here(taking_);
  const bool from_its_first = iteration == 0;
  if (from_its_first) iteration = ++iteration_;
  if (iteration != iteration_) {
    throw error({errc::usage,
                 fmt::format("this range over epoch {} is out of date: the session goes on elsewhere", epoch),
                 0});
  }
  return take_of(epoch, from_its_first);
}

std::optional<Batch> Session::body::take() {
  {
    const std::lock_guard hold(mutex_);
    if (closed_) throw error({errc::usage, "this session is closed", 0});
  }
  if (elsewhere()) {
    throw error({errc::usage,
                 "[gpu] placement = \"process\" keeps batches in the owner's process: call run_for() instead "
                 "of taking "
                 "them, or set placement to \"embedded\"",
                 0});
  }
  start();
  const steady_time demanded = now();
  while (true) {
    auto taken = home_->take_from(*consumer_);
    board_.waited(consumer_->waited());
    if (auto* why = std::get_if<failure>(&taken)) throw error(std::move(*why));
    if (std::holds_alternative<gpu_owner::hand_over::stream_ended>(taken)) return end_of_stream();
    auto& ready = std::get<gpu_owner::ready_batch>(taken);
    if (ready.seek_number == seek_number_) return hand_out(std::move(ready), demanded);
    home_->give_back(ready.buffer);  // of before the last seek
  }
}

std::optional<Batch> Session::body::take_of(std::uint64_t epoch, bool from_its_first) {
  {
    const std::lock_guard hold(mutex_);
    if (closed_) throw error({errc::usage, "this session is closed", 0});
  }
  start();
  const auto range = wait_for_range_of(epoch);
  if (!range) return take();  // failed or stopped before there was a plan: says so
  const bool inside = next_position_ >= range->first && next_position_ < range->end;
  if (from_its_first ? next_position_ != range->first : !inside && next_position_ != range->end) seek(*range);
  if (next_position_ < range->end) return take();
  bool last = false;
  {
    const std::lock_guard hold(mutex_);
    last = next_position_ >= range_.end;
  }
  return last ? end_of_stream() : std::nullopt;
}

bool Session::body::run_for(std::chrono::milliseconds at_most) {
  value_or_throw(gpu_owner::check_sink(options_.sink, options_.sink_out));
  const steady_time until = now() + std::clamp(at_most, std::chrono::milliseconds(0), longest_run);
  return elsewhere() ? run_elsewhere(until) : run_embedded(until);
}

bool Session::body::run_embedded(steady_time until) {
  while (now() < until) {
    auto batch = next();
    if (!batch) {
      // A stream that was stopped is not over for the sink: somebody may go on with it.
      const bool whole = board_.status().outcome == run_outcome::finished || options_.batches;
      if (sink_ && whole) value_or_throw(std::exchange(sink_, {})->finish());
      return true;
    }
    if (!sink_) {
      std::shared_ptr<device::device> device;
      {
        const std::lock_guard hold(mutex_);
        device = engine_->device;
      }
      sink_ = value_or_throw(gpu_owner::make_sink(options_.sink, options_.sink_out, std::move(device)));
    }
    {
      const stage_range range("sink");
      value_or_throw(sink_->take(*batch));
    }
    batch->release_unused();
  }
  return false;
}

bool Session::body::run_elsewhere(steady_time until) {
  start();
  const auto told = consumer_->take_until(until);
  if (!told) return false;
  if (const auto* why = std::get_if<failure>(&*told)) throw error(*why);
  // All is acknowledged, or somebody wants the end: then what the sink has counts, and it does not finish.
  bool whole = false;
  {
    const std::lock_guard hold(mutex_);
    whole = !stopped_;
    next_position_ = range_.end;
  }
  wait_for_owner(whole);
  end_of_stream();
  if (const auto after = consumer_->take_until(now()); after && std::holds_alternative<failure>(*after))
    throw error(std::get<failure>(*after));  // the sink failed at its end
  return true;
}

std::optional<schedule::stream_range> Session::body::wait_for_range_of(std::uint64_t epoch) {
  std::unique_lock hold(mutex_);
  plan_or_end_.wait(hold, [&] { return plan_ || failed_ || stopped_; });
  if (!plan_) return std::nullopt;
  const std::uint64_t batches = plan_->batches_per_epoch();
  if (batches > 0 && epoch >= std::numeric_limits<stream_position>::max() / batches)
    throw error({errc::usage, fmt::format("there is no epoch {}", epoch), 0});
  return schedule::stream_range{epoch * batches, (epoch + 1) * batches};
}

void Session::body::seek(schedule::stream_range range) {
  ++seek_number_;
  for (const gpu_owner::ready_batch& dropped : consumer_->begin_seek(seek_number_))
    home_->give_back(dropped.buffer);
  next_position_ = range.first;
  ended_ = false;
  board_.ended(run_outcome::running, std::nullopt, now());
  const std::lock_guard hold(mutex_);
  // Beyond the epoch the stream is prepared as far as the config's epochs go.
  range_ = {range.first, std::max(range.end, settings_.sampler.epochs * plan_->batches_per_epoch())};
  if (engine_) caf::anon_send(engine_->scheduler, scheduler::seek_stream{seek_number_, range_});
}

std::optional<Batch> Session::body::hand_out(gpu_owner::ready_batch ready, steady_time demanded) {
  const std::uint64_t upload = ready.upload;
  next_position_ = ready.position + 1;
  std::shared_ptr<const device::transfer_plan> transfer;
  {
    const std::lock_guard hold(mutex_);
    transfer = transfer_;
  }
  Batch batch = batch_access::make(std::move(ready), std::move(transfer), home_);
  const auto digest = options_.digests ? std::optional(batch.digest()) : std::nullopt;
  const steady_time taken = now();
  board_.batch_taken(taken);
  times_->note(next_position_ - 1, batch_stage::taken, taken);
  const std::lock_guard hold(mutex_);
  if (engine_ && engine_->deliveries->add({upload, digest, demanded, taken}))
    caf::anon_send(engine_->scheduler, scheduler::batches_delivered{engine_->deliveries});
  return batch;
}

std::optional<Batch> Session::body::end_of_stream() {
  if (std::exchange(ended_, true)) return std::nullopt;
  bool whole = false;
  {
    const std::lock_guard hold(mutex_);
    whole = !stopped_ && plan_ && next_position_ >= settings_.sampler.epochs * plan_->batches_per_epoch();
  }
  // What was delivered is told before the end is: the scheduler may still have the last batch to enter.
  static_cast<void>(accounts(false));
  const run_outcome how = whole ? run_outcome::finished : run_outcome::stopped;
  if (board_.ended(how, std::nullopt, now())) tell_ended(how);
  return std::nullopt;
}

}  // namespace penstock
