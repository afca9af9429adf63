// What the actors report to a session: this class records it on the board, turns it into events and wakes
// waiting threads. Created with the engine, before the actors, and outlives them. Private to
// session_wiring.cpp.
//
// Threads: each actor calls from its own thread, so everything used here is thread-safe or used by one caller
// only.
#pragma once

#include "actors/protocol/local/news.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/device/exclusive_use.hpp"
#include "runtime/device/gpu_process_watch.hpp"

#include <caf/send.hpp>

namespace penstock {

class Session::body::news_of_actors final : public gpu_owner::owner_news,
                                            public supervisor::keeper_news,
                                            public scheduler::scheduler_news,
                                            public session::stream_news,
                                            public group::group_news {
 public:
  news_of_actors(body& session, engine& e) : session_(session), board_(session.board_), engine_(e) {}

  // ---- from several actors --------------------------------------------------------------------------------

  void gave_up(const failure& why) override { session_.fail(why); }

  void opened(const device::identity& what) override {
    if (what.uuid && !session_.settings_.gpu.share) {
      auto ours = device::exclusive_use::take(*what.uuid, session_.settings_.name);
      if (!ours) return gave_up(ours.error());
      const std::lock_guard hold(lock_guard_);
      lock_.emplace(std::move(*ours));
    }
    // Never if the GPU owner is another process: the query opens the GPU's device files.
    if (what.uuid && !session_.has_keeper())
      watch_.emplace(*what.uuid, [this](const std::vector<gpu_process>& seen) { gpu_processes_seen(seen); });
    board_.device_opened(what);
    session_.tell(host::event_of(event_kind::device_opened, what.name));
    log::debug("gpu", "opened {}", what.name);
    if (session_.group_) {  // allocate and start nothing before all ranks are present
      caf::anon_send(engine_.member, group::join_group{what.uuid.value_or("")});
    } else {
      caf::anon_send(engine_.session, session::device_ready{});
    }
  }

  /// No further uploads: other sessions may use the GPU. Any thread.
  void release_gpu() {
    const std::lock_guard hold(lock_guard_);
    lock_.reset();
  }

  void attached(const gpu_owner::attached_partition& what) override {
    session_.tell(host::event_of(what));
  }

  void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) override {
    board_.uploaded(uploads, bytes, pinned);
  }

  void communicator_changed(const group::communicator_state& state) override {
    log::info("group", "communicator {}: {}{}{}", group::communicator_ordinal(state.number),
              name_of(state.at), state.cause.empty() ? "" : ": ", state.cause);
    caf::anon_send(engine_.member, group::communicator_told{state});
  }

  void communicator_drawn(std::uint64_t number, const std::string& id) override {
    caf::anon_send(engine_.coordinator, group::communicator_drawn{number, id});
  }

  void snapshots_changed(const std::vector<std::uint64_t>& steps) override {
    caf::anon_send(engine_.member, group::snapshots_held{steps});
  }

  // ---- from a GPU owner in this process -------------------------------------------------------------------

  void failed(const failure& why) override {
    board_.device_state("failed");
    session_.tell(host::event_of(event_kind::device_failed, why.message));
    gave_up(why);
  }

  void slots_released(std::vector<std::uint64_t> uploads) override {
    caf::anon_send(engine_.scheduler, scheduler::slots_released{std::move(uploads)});
  }

  // ---- from the keeper of an owner in another process -----------------------------------------------------

  void reopened(pid_t owner) override {
    event again = host::event_of(event_kind::device_opened,
                                    fmt::format("{}, reopened by a new GPU owner", board_.status().gpu.name));
    again.pid = owner;
    session_.tell(std::move(again));
  }

  void owner_changed(const supervisor::owner_facts& facts) override {
    board_.owner_changed(facts.state, facts.pid, facts.restarts);
    session_.owner_is_irreplaceable_ = facts.irreplaceable;
  }

  void owner_died(const owner_death_report& death) override {
    board_.owner_died(death);
    session_.tell(host::event_of(death));
  }

  void owner_recovered(std::uint32_t incarnation, double seconds_since_its_end) override {
    board_.owner_recovered(incarnation, seconds_since_its_end);
  }

  void owner_waited(nanoseconds in_all, std::optional<steady_time> waits_at) override {
    board_.waited(in_all, waits_at);
  }

  void gpu_processes_seen(std::vector<gpu_process> processes) override {
    board_.gpu_processes_seen(std::move(processes));
  }

  void owner_closed() override { session_.ending_.owner_gone(); }

  // ---- from the scheduler ---------------------------------------------------------------------------------

  void sample_failed(const scheduler::lost_sample& lost) override {
    board_.sample_failed(lost);
    warn(host::event_of_failed(lost));
  }

  void sample_quarantined(const scheduler::lost_sample& lost) override {
    board_.sample_quarantined(lost);
    warn(host::event_of_quarantined(lost));
  }

  void batch_delivered(const schedule::delivery& batch, std::uint64_t epoch) override {
    board_.delivered(batch, epoch);
    if (session_.has_keeper()) board_.batch_taken(now());
    if (session_.group_ && session_.has_keeper()) {
      session_.group_->delivered = batch.position + 1;
      if (session_.group_->gate->ends_with(session_.group_->delivered)) session_.end_within(std::nullopt);
    }
  }

  void batch_recovered(std::uint64_t epoch, std::uint64_t sequence) override {
    session_.tell(host::event_of_recovered(epoch, sequence));
  }

  void epoch_done(const schedule::epoch_account& done) override { session_.tell(host::event_of(done)); }

  void counted(std::uint64_t stale_dropped, std::uint64_t quarantined) override {
    board_.counted(stale_dropped, quarantined);
  }

  void stream_finished(std::uint64_t seek_number) override { session_.consumer_->finish(seek_number); }

  void answered() override { session_.pulse_.scheduler_answered(); }

  // ---- from the session actor -----------------------------------------------------------------------------

  void planned(std::shared_ptr<const plan> order, std::shared_ptr<const device::transfer_plan> transfer,
               schedule::stream_range range, const std::string& fingerprint) override {
    if (session_.group_) {
      session_.group_->delivered = range.first;
      session_.group_->gate->start_at(range.first);
      caf::anon_send(engine_.member,
                     group::stream_described{session::facts_of(fingerprint, *order, range), range.first});
    }
    board_.planned(session::samples_in(*order, {0, range.first}), session::samples_in(*order, range));
    session_.tell(host::event_of(
        event_kind::stream_opened,
        fmt::format("{} per epoch, {}", penstock::counted(order->batches_per_epoch(), "batch", "batches"),
                    penstock::counted(order->expected_samples(), "sample"))));
    session_.cursor_.open(std::move(order), std::move(transfer), range);
  }

  void quarantine_known(const std::vector<quarantine_report>& known) override {
    board_.quarantine_known(known);
  }

  // ---- from the actors of a group -------------------------------------------------------------------------

  void group_changed(const group_status& facts) override {
    board_.group_changed(facts);
    session_.pulse_.member_stepped();
  }

  void group_event(event_kind what, std::string text) override {
    session_.tell(host::event_of(what, std::move(text)));
    // The other ranks wait until this one has delivered the common step.
    if (what == event_kind::group_stopping) session_.pause(false);
  }

  void joined() override { caf::anon_send(engine_.session, session::device_ready{}); }

  void gate_moved() override { caf::anon_send(engine_.scheduler, scheduler::gate_moved{}); }

  void group_over(group::group_outcome how, const std::optional<group::group_cause>& cause) override {
    session_.group_->over = true;
    if (how == group::group_outcome::failed)
      return gave_up({errc::group_failed, cause ? group::in_words(*cause) : "the group has failed", 0});
    if (how == group::group_outcome::stopped) session_.end_with_group();
  }

  void communicator_ordered(const gpu_owner::communicate& order) override {
    caf::anon_send(engine_.owner, order);
  }

  void cannot_listen(const std::string& why) override {
    caf::anon_send(engine_.member, group::cannot_listen{why});
  }
  void member_gone() override {
    session_.pulse_.member_gone();
    session_.ending_.group_actor_gone();
  }
  void coordinator_gone() override { session_.ending_.group_actor_gone(); }

 private:
  void warn(event what) {
    log::warn("scheduler", "{}", what.text);
    session_.tell(std::move(what));
  }

  body& session_;
  host::board& board_;
  engine& engine_;
  std::mutex lock_guard_;                           // guards lock_
  std::optional<device::exclusive_use> lock_;       // the lock on the GPU
  std::optional<device::gpu_process_watch> watch_;  // watches the GPU's other processes while we hold it
};

}  // namespace penstock
