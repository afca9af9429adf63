#include "actors/gpu_owner/owner_batches.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

namespace penstock::gpu_owner {
namespace {

// In a group with a communicator: how often to check for the end while the communicator is being made, and
// how long to wait for a batch before acknowledging those already taken.
constexpr nanoseconds looked_at_every = std::chrono::milliseconds(20);
constexpr nanoseconds idle_after = std::chrono::milliseconds(20);

// The session learns of a slow sink's deliveries at most this much later, or with the next one.
constexpr nanoseconds acknowledged_within = std::chrono::milliseconds(500);

}  // namespace

result<void> owner_batches::run() {
  while (true) {
    const steady_time demanded = std::chrono::steady_clock::now();
    if (deps_.flight != nullptr) deps_.flight->wait_begins(demanded);
    if (nothing_comes()) {
      if (auto ok = acknowledge(); !ok) return ok;
    }
    auto taken = deps_.consumer->take();
    if (deps_.flight != nullptr) deps_.flight->wait_ends(std::chrono::steady_clock::now());
    if (auto* why = std::get_if<failure>(&taken)) return tl::unexpected(std::move(*why));
    // The device is certain to be open only once take() has returned; a device program may use the device
    // from then on.
    if (!sink_) {
      if (auto ok = open_sink(); !ok) return ok;
    }
    if (std::holds_alternative<hand_over::stream_ended>(taken)) break;
    ready_batch& next = std::get<ready_batch>(taken);
    const stream_position position = next.position;
    if (!wait_for_group(position)) break;
    if (auto ok = deliver(std::move(next), demanded); !ok) {
      // Free the communicator completely before the process ends, unless that takes too long.
      if (deps_.communicator && ok.error().code == errc::group_failed)
        deps_.communicator->wait_until_gone(2 * deps_.settings->group.abort_timeout);
      return ok;
    }
    if (auto ok = acknowledge_if_due(position); !ok) return ok;
  }
  if (deps_.marks->whole) {
    if (auto ok = sink_->finish(); !ok) return ok;
  }
  sink_.reset();
  return {};
}

result<void> owner_batches::open_sink() {
  const protocol::open_owner& order = *deps_.order;
  const auto settings = protocol::config_from_bytes(order.config);
  if (!settings) return tl::unexpected(settings.error());
  auto made = make_sink(order.sink, order.out, *settings, deps_.device, deps_.communicator);
  if (!made) return tl::unexpected(std::move(made.error()));
  sink_ = std::move(*made);
  if (order.restores) {
    const auto* first = reinterpret_cast<const std::byte*>(order.snapshot.data());
    if (auto ok = sink_->restore({first, order.snapshot.size()}); !ok) return ok;
  }
  if (sink_->replay() == replay_rule::from_snapshot) {
    // Only a request for a snapshot shows whether the sink provides any.
    if (auto ok = sink_->snapshot(); !ok) return tl::unexpected(std::move(ok.error()));
  }
  if (sink_->replay() == replay_rule::never) deps_.link->send(protocol::owner_irreplaceable{});
  return {};
}

/// False: the session ends first. Not timed by the flight recorder, so this wait never looks like a hung
/// batch.
bool owner_batches::wait_for_group(stream_position position) const {
  while (deps_.communicator && !deps_.marks->alone && position >= deps_.marks->base &&
         !deps_.communicator->wait_until_usable(looked_at_every)) {
    if (deps_.consumer->ended()) return false;
  }
  return true;
}

/// Whether no batch has arrived for a while, so that those taken should be acknowledged now.
bool owner_batches::nothing_comes() const {
  return deps_.communicator && !taken_.empty() && !deps_.consumer->wait_for_batch(idle_after);
}

result<void> owner_batches::deliver(ready_batch ready, steady_time demanded) {
  // If this batch kills us, the session finds it here.
  const auto mark = static_cast<std::uint32_t>(ready.upload & generation_mask);
  if (deps_.flight != nullptr) deps_.flight->publish({arena::phase::loading, 0, 0, mark}, "");
  const std::uint64_t upload = ready.upload;
  const stream_position position = ready.position;
  deps_.times->note(position, batch_stage::taken, std::chrono::steady_clock::now());
  Batch batch = batch_access::make(std::move(ready), deps_.plan, deps_.home);
  try {
    const std::uint64_t digest = deps_.order->digests ? batch.digest() : 0;
    if (auto ok = put_in_sink(batch, deps_.communicator && position < deps_.marks->base); !ok) return ok;
    batch.release_unused();
    const batch_passage p = deps_.times->find(position).value_or(batch_passage());
    const nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
    taken_.push_back({upload, digest, p.time_of(batch_stage::submitted), p.time_of(batch_stage::copied),
                      p.time_of(batch_stage::ready), p.time_of(batch_stage::taken), now.count(),
                      nanoseconds(demanded.time_since_epoch()).count()});
  } catch (const error& e) {
    return tl::unexpected(e.as_failure());
  }
  if (deps_.flight != nullptr) {
    deps_.flight->sample_done();
    deps_.flight->rest();
  }
  return {};
}

/// `is_known`: the sink's state already contains the batch, from an earlier process of this rank or from
/// another rank.
result<void> owner_batches::put_in_sink(const Batch& batch, bool is_known) {
  if (is_known != skipped_) {  // batches with and without a snapshot need separate messages
    if (auto ok = acknowledge(); !ok) return ok;
    skipped_ = is_known;
  }
  const stage_range range("sink");
  return is_known ? result<void>() : sink_->take(batch);
}

result<void> owner_batches::acknowledge() {
  if (taken_.empty()) return {};
  protocol::batches_delivered news;
  if (sink_->replay() == replay_rule::from_snapshot && !std::exchange(skipped_, false)) {
    const auto state = sink_->snapshot();
    if (!state) return tl::unexpected(state.error());
    if (state->size() > snapshot_bytes_max) {
      return refuse(errc::sink, "the sink '{}' returned a snapshot of {}; the limit is {}",
                    printable(deps_.order->sink), bytes_for_people(state->size()),
                    bytes_for_people(snapshot_bytes_max));
    }
    news.snapshots = true;
    news.snapshot.assign(reinterpret_cast<const char*>(state->data()), state->size());
  }
  acknowledged_ = std::chrono::steady_clock::now();
  const upload_counts counts = deps_.counts();
  news.deliveries = std::exchange(taken_, {});
  news.digests = deps_.order->digests;
  news.uploads = counts.uploads;
  news.bytes = counts.bytes;
  news.pinned = counts.pinned;
  deps_.link->send(news);
  return {};
}

result<void> owner_batches::acknowledge_if_due(stream_position last) {
  const bool as_usual = !deps_.communicator || skipped_;
  const bool is_late = std::chrono::steady_clock::now() - acknowledged_ >= acknowledged_within;
  const bool due = as_usual ? taken_.size() >= deliveries_a_message || is_late || !deps_.consumer->has_batch()
                            : (last + 1) % deliveries_a_message == 0;
  return due ? acknowledge() : result<void>();
}

}  // namespace penstock::gpu_owner
