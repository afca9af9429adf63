#include "actors/caf/caf.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/stage_range.hpp"

#include <algorithm>
#include <future>

namespace penstock {
namespace {

// Longer times are clamped to this value: a later deadline would overflow the clock.
constexpr std::chrono::milliseconds longest_run = std::chrono::hours(24 * 365 * 10);

// How long to wait while every buffer waits for the end of a stream capture.
constexpr std::chrono::seconds patience_with_captures(10);

constexpr std::chrono::seconds patience_with_supervisor(2);

/// Refuses a second thread in next(): each would get only part of the stream.
class only_taker {
 public:
  explicit only_taker(std::atomic<bool>& taken) : taken_(taken) {
    if (taken_.exchange(true))
      throw error({errc::usage, "two threads are taking batches from one session at the same time", 0});
  }
  ~only_taker() { taken_ = false; }
  only_taker(const only_taker&) = delete;
  only_taker& operator=(const only_taker&) = delete;

 private:
  std::atomic<bool>& taken_;
};

/// Counts the time until its destruction as time spent waiting for a batch.
class counted_wait {
 public:
  explicit counted_wait(host::board& where) : where_(where) {
    where_.wait_begins(std::chrono::steady_clock::now());
  }
  ~counted_wait() { where_.wait_ends(std::chrono::steady_clock::now()); }
  counted_wait(const counted_wait&) = delete;
  counted_wait& operator=(const counted_wait&) = delete;

 private:
  host::board& where_;
};

}  // namespace

std::optional<Batch> Session::body::next() {
  const only_taker here(taking_);
  cursor_.begin_iteration();
  return take();
}

std::optional<Batch> Session::body::next_of(std::uint64_t epoch, std::uint64_t& iteration) {
  const only_taker here(taking_);
  const bool from_its_first = cursor_.enter(epoch, iteration);
  try {
    return take_of(epoch, from_its_first);
  } catch (...) {
    if (from_its_first) iteration = 0;  // the consumer took no batch: the next call starts the epoch
    throw;
  }
}

gpu_owner::hand_over::taken Session::body::take_from_queue() {
  return home_->take_from(*consumer_, patience_with_captures, options_.while_waiting);
}

std::optional<Batch> Session::body::take() {
  if (ending_.closed()) throw error({errc::usage, "this session is closed", 0});
  if (owner_is_inside()) {
    throw error({errc::usage,
                 "with [group] communicator the device program takes the batches, and acknowledges them when "
                 "all ranks have them: call run_for() instead of taking them, or leave the communicator out "
                 "(your program can have one in a group of its own: penstock/group.hpp)",
                 0});
  }
  if (has_keeper()) {
    throw error({errc::usage,
                 "[gpu] placement = \"process\" keeps batches in the owner's process: call run_for() instead "
                 "of taking "
                 "them, or set placement to \"embedded\"",
                 0});
  }
  start();
  const steady_time demanded = now();
  while (true) {
    auto taken = [&] {
      const counted_wait here(board_);
      return group_ ? take_through_gate() : take_from_queue();
    }();
    if (auto* why = std::get_if<failure>(&taken)) throw error(std::move(*why));
    if (std::holds_alternative<gpu_owner::hand_over::stream_ended>(taken)) return end_of_stream();
    auto& ready = std::get<gpu_owner::ready_batch>(taken);
    if (cursor_.wants(ready.seek_number)) return hand_out(std::move(ready), demanded);
    home_->give_back(ready.buffer);  // prepared before the last seek
  }
}

std::optional<Batch> Session::body::take_of(std::uint64_t epoch, bool from_its_first) {
  if (ending_.closed()) throw error({errc::usage, "this session is closed", 0});
  start();
  const auto range = [&] {
    const counted_wait here(board_);
    return cursor_.wait_for_epoch(epoch, options_.while_waiting);
  }();
  if (!range) return take();  // failed or stopped before there was a plan: take() throws the reason
  switch (cursor_.step_in(*range, from_its_first)) {
    case session::next_step::seek: seek(*range); break;
    case session::next_step::take: break;
    case session::next_step::epoch_over: return std::nullopt;
    case session::next_step::stream_over: return end_of_stream();
  }
  return take();
}

bool Session::body::run_for(std::chrono::milliseconds at_most) {
  value_or_throw(gpu_owner::check_sink(options_.sink, options_.sink_out));
  const steady_time until = now() + std::clamp(at_most, std::chrono::milliseconds(0), longest_run);
  return has_keeper() ? run_acknowledged(until) : run_embedded(until);
}

bool Session::body::run_embedded(steady_time until) {
  while (now() < until) {
    auto batch = next();
    if (!batch) {
      // Do not finish the sink of a stopped stream: a later run may resume the stream.
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
      sink_ = value_or_throw(
          gpu_owner::make_sink(options_.sink, options_.sink_out, settings_, std::move(device)));
    }
    {
      const stage_range range("sink");
      value_or_throw(sink_->take(*batch));
    }
    batch->release_unused();
  }
  return false;
}

bool Session::body::run_acknowledged(steady_time until) {
  start();
  const auto told = consumer_->take_until(until);
  if (!told) return false;
  if (const auto* why = std::get_if<failure>(&*told)) throw error(*why);
  // Either all batches are acknowledged, or the session was stopped and the sink stays unfinished.
  const bool whole = !ending_.stopped();
  cursor_.reach_end();
  if (!wait_for_owner(whole) && whole)
    fail({errc::sink, "the sink did not finish in time: the GPU owner has not ended", 0});
  end_of_stream();
  if (const auto after = consumer_->take_until(now()); after && std::holds_alternative<failure>(*after))
    throw error(std::get<failure>(*after));  // the sink failed while finishing
  return true;
}

void Session::body::seek(schedule::stream_range range) {
  const auto order = cursor_.begin_seek(range);
  for (const gpu_owner::ready_batch& dropped : consumer_->begin_seek(order.number))
    home_->give_back(dropped.buffer);
  board_.ended(run_outcome::running, std::nullopt, now());
  const std::lock_guard hold(mutex_);
  if (engine_)
    actors::tell(engine_->scheduler, scheduler::seek_stream{order.number, order.range, order.plan});
}

std::optional<Batch> Session::body::hand_out(gpu_owner::ready_batch ready, steady_time demanded) {
  const std::uint64_t upload = ready.upload;
  const stream_position position = ready.position;
  cursor_.taken(position);
  Batch batch = batch_access::make(std::move(ready), cursor_.transfer(), home_);
  const auto digest = options_.digests ? std::optional(batch.digest()) : std::nullopt;
  const steady_time taken = now();
  board_.batch_taken(taken);
  times_->note_demanded(position, demanded);
  times_->note(position, batch_stage::taken, taken);
  std::unique_lock hold(mutex_);
  if (engine_ && engine_->deliveries->add({upload, digest, demanded, taken}))
    actors::tell(engine_->scheduler, scheduler::batches_delivered{engine_->deliveries});
  hold.unlock();
  if (cursor_.everything_taken()) tell_group_of_end();
  return batch;
}

/// Waits for deaths that the scheduler has decided but not yet reported. Their lost work may already have
/// been loaded again and delivered.
void Session::body::hear_of_deaths() {
  auto done = std::make_shared<std::promise<void>>();
  const auto told = done->get_future();
  {
    const std::lock_guard hold(mutex_);
    if (!engine_) return;
    actors::tell(engine_->supervisor, supervisor::when_handled{[done = std::move(done)] { done->set_value(); }});
  }
  static_cast<void>(is_ready_within(told, patience_with_supervisor));
}

std::optional<Batch> Session::body::end_of_stream() {
  if (!cursor_.end()) return std::nullopt;
  tell_group_of_end();
  const bool whole = !ending_.stopped() && cursor_.everything_taken();
  // The scheduler may not have recorded the last batch yet. Wait, so that the batch's events precede the
  // final ones.
  static_cast<void>(accounts(false));
  hear_of_deaths();
  const run_outcome how = whole ? run_outcome::finished : run_outcome::stopped;
  const bool news = how == run_outcome::stopped && !ending_.why_failed().empty() ? board_.ended_if_running(how, now(), ending_.why_failed())
                                                                                 : board_.ended(how, std::nullopt, now());
  if (news) tell_ended(how);
  return std::nullopt;
}

}  // namespace penstock
