#include "runtime/supervision/progress_watch.hpp"

#include <algorithm>

namespace penstock::supervision {
namespace {

/// A session that is paused while its consumer asks for no batch has nothing to do.
bool rests(const progress_facts& f) {
  return f.status.state == "paused" && !f.status.jobs && !f.consumer_waits && !f.owner_is_elsewhere;
}

}  // namespace

bool progress_watch::moved(const progress_facts& facts) {
  std::uint64_t passed = facts.released * batch_stages;
  if (const auto& jobs = facts.status.jobs) passed += jobs->ok + jobs->failed + jobs->cancelled;
  bool any = false;
  if (facts.batch && facts.batch->doing.step != batch_step::unknown) {
    const std::pair mark(facts.batch->job, facts.batch->doing.number);
    any |= std::exchange(mark_, mark) != mark;
  }
  for (const batch_passage& b : facts.under_way) passed += 1 + static_cast<std::uint64_t>(b.reached());
  const bool stage_passed = passed > stages_passed_;  // the sum can shrink: a batch that is loaded again goes back
  stages_passed_ = std::max(stages_passed_, passed);
  any |= stage_passed;
  for (const worker_status& w : facts.status.workers) {
    work& done = work_[w.id];
    if (std::exchange(done.incarnation, w.incarnation) != w.incarnation) done.before = 0;
    const std::uint64_t since = w.samples - std::min(w.samples, done.before);
    any |= since > done.most;
    done.most = std::max(done.most, since);
    if (stage_passed) done.before = w.samples, done.most = 0;
  }
  return any;
}

/// Whether something has become ready for the first time. Each place counts once, so a pool that crashes and
/// restarts forever cannot hide a stall.
bool progress_watch::started(const progress_facts& facts) {
  bool any = facts.status.gpu_state == "ready" && !std::exchange(owner_started_, true);
  for (const worker_status& w : facts.status.workers) {
    if (w.state == "ready") any |= started_.insert(w.id).second;
  }
  return any;
}

progress_watch::news progress_watch::look(steady_time now, const progress_facts& facts) {
  const bool any = moved(facts);
  const bool first_ready = started(facts);
  if (!stalled_ && first_ready) last_movement_ = now;
  if (any || last_movement_ == never || !is_owed(facts) || rests(facts)) {
    last_movement_ = now;
    const bool was_stalled = std::exchange(stalled_, std::nullopt).has_value();
    return was_stalled && any ? news::moves_again : news::none;
  }
  if (now - last_movement_ < patience_) return news::none;
  const awaited why = find_blocker(facts);
  if (!stalled_ && now - last_movement_ < why.usual) return news::none;
  const std::string before = stalled_ ? stalled_->kind : std::string();
  stalled_ = stall_report{name_of(why.kind), "waiting for " + why.text,
                          std::chrono::duration<double>(now - last_movement_).count(), why.worker, why.sample, why.hung_before};
  return before == stalled_->kind ? news::none : news::stalled;
}

}  // namespace penstock::supervision
