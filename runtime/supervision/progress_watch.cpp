#include "runtime/supervision/progress_watch.hpp"

#include <algorithm>

namespace penstock::supervision {
namespace {

/// Whether the session is paused while its consumer asks for no batch: then it has nothing to do.
bool rests(const progress_facts& f) {
  return f.status.state == session_state::paused && !f.status.jobs && !f.consumer_waits && !f.owner_is_elsewhere;
}

/// The rows of this batch that its worker has finished. A second worker that also loads the batch
/// (a hedge) does not count.
std::uint32_t rows_of(const progress_facts& f, const batch_passage& b) {
  const auto at = f.loading.find(b.worker);
  if (b.reached() >= batch_stage::loaded || at == f.loading.end() || at->second.slot != b.slot) return 0;
  // The latest news of a remote worker may be about the batch that was in this slot before.
  const bool is_of_this_lease = nanoseconds(at->second.since.time_since_epoch()).count() >= b.time_of(batch_stage::leased);
  return is_of_this_lease ? at->second.rows : 0;
}

/// Whether `now` is higher than all earlier values.
bool grows(std::uint64_t& most, std::uint64_t now) {
  return std::exchange(most, std::max(most, now)) < now;
}

}  // namespace

void progress_watch::add_batches(const progress_facts& facts, movement& found) {
  std::map<stream_position, furthest> now;
  bool before_the_head = true;
  bool head_is_tried_again = false;
  for (const batch_passage& b : facts.under_way) {
    const auto known = batches_.find(b.position);
    const std::pair holder(b.worker, b.incarnation);
    const furthest before = known == batches_.end() ? furthest{.holder = holder} : known->second;
    const furthest reached{std::max(before.stage, b.reached()), std::max(before.rows, rows_of(facts, b)), holder,
                           before.is_tried_again || before.holder != holder};
    const bool further = reached.stage > before.stage || reached.rows > before.rows;
    found.anywhere |= further;
    found.at_the_head |= further && before_the_head;
    head_is_tried_again |= before_the_head && reached.is_tried_again && reached.stage < batch_stage::taken;
    before_the_head = before_the_head && before.stage >= batch_stage::taken;
    now.emplace(b.position, reached);
  }
  if (head_is_tried_again) found.anywhere = found.at_the_head;
  batches_ = std::move(now);
}

/// A data loader submits the batch of a failed job again as another job. So the end of such a job is no
/// progress; a loaded or delivered batch is.
void progress_watch::add_jobs(const pool_statistics& jobs, const progress_facts& facts, movement& found) {
  if (!jobs.of_batches) {
    const bool ended = grows(jobs_ended_, jobs.ok + jobs.failed + jobs.cancelled);
    found.anywhere |= ended;
    found.at_the_head |= ended;
    return;
  }
  const bool loaded = grows(jobs_ended_, jobs.ok);
  found.anywhere |= loaded;
  bool delivered = std::exchange(delivered_, facts.status.batches_done) != facts.status.batches_done;
  if (delivered) mark_ = {};
  delivered |= loaded && !facts.batch;  // the consumer already has the batch, but has not counted it yet
  bool further = false;
  if (facts.batch && facts.batch->doing.step != batch_step::unknown) {
    const std::pair mark(facts.batch->doing.step, facts.batch->doing.number);
    further = std::exchange(mark_, std::max(mark_, mark)) < mark;
  }
  found.anywhere |= delivered || further;
  found.at_the_head |= delivered || further;
}

progress_watch::movement progress_watch::moved(const progress_facts& facts) {
  movement found;
  found.anywhere = found.at_the_head = grows(released_, facts.released);
  if (std::exchange(seeks_, facts.seeks) != facts.seeks) batches_.clear();
  add_batches(facts, found);
  if (facts.status.jobs) add_jobs(*facts.status.jobs, facts, found);
  return found;
}

/// Whether something has become ready for the first time. Each place counts once, so a pool that crashes and
/// restarts forever cannot hide a stall.
bool progress_watch::started(const progress_facts& facts) {
  bool any = facts.status.gpu_state == child_state::ready && !std::exchange(owner_started_, true);
  for (const worker_status& w : facts.status.workers) {
    if (w.state == child_state::ready) any |= started_.insert(w.id).second;
  }
  return any;
}

progress_watch::news progress_watch::look(steady_time now, const progress_facts& facts) {
  const movement found = moved(facts);
  const bool moves = stalled_ ? found.at_the_head : found.anywhere;
  const bool first_ready = started(facts);
  if (!stalled_ && first_ready) last_movement_ = now;
  if (moves || last_movement_ == never || !is_owed(facts) || rests(facts)) {
    last_movement_ = now;
    const bool was_stalled = std::exchange(stalled_, std::nullopt).has_value();
    return was_stalled && moves ? news::moves_again : news::none;
  }
  if (now - last_movement_ < patience_) return news::none;
  const awaited why = find_blocker(facts);
  if (!stalled_ && now - last_movement_ < why.usual) return news::none;
  const std::optional<stall_kind> before = stalled_ ? std::optional(stalled_->kind) : std::nullopt;
  const bool was_held = before == stall_kind::operator_;
  const bool is_held = why.kind == stall_kind::operator_;
  if (is_held && !was_held) held_since_ = stalled_ ? now : last_movement_;
  // A pause or drain that is over does not count as time without progress.
  if (was_held && !is_held) last_movement_ += now - held_since_;
  if (now - last_movement_ < patience_) {
    stalled_.reset();
    return news::none;
  }
  stalled_ = stall_report{why.kind, "waiting for " + why.text,
                          std::chrono::duration<double>(now - last_movement_).count(), why.worker, why.sample, why.hung_before, why.suspended};
  return before == stalled_->kind ? news::none : news::stalled;
}

std::optional<stall_report> progress_watch::stalled_at(steady_time now, const progress_facts& facts) const {
  progress_watch next = *this;
  next.look(now, facts);
  return next.stalled_;
}

}  // namespace penstock::supervision
