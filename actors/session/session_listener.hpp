// What the actors report to a session: this class records it on the board, turns it into events and wakes waiting threads.
// Its base class does the same with what the GPU owner reports. Created with the engine, before the actors, and outlives them.
// Private to session_wiring.cpp.
//
// Threads: each actor calls from its own thread, so everything used here is thread-safe or used by one caller
// only.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/host/owner_reports.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"

namespace penstock {

class Session::body::session_listener final : public host::owner_reports,
                                            public scheduler::scheduler_listener,
                                            public session::stream_listener,
                                            public group::group_listener {
 public:
  session_listener(body& session, engine& e)
      : owner_reports({&session.settings_, session.has_keeper(), &session.board_, &session.ending_,
                       [&session](event what) { session.tell(std::move(what)); }}),
        session_(session),
        board_(session.board_),
        engine_(e) {}

  // ---- from several actors --------------------------------------------------------------------------------

  void gave_up(const failure& why) override { session_.fail(why); }

  void communicator_changed(const group::communicator_state& state) override {
    log::info("group", "communicator {}: {}{}{}", group::communicator_ordinal(state.number),
              name_of(state.at), state.cause.empty() ? "" : ": ", state.cause);
    actors::tell(engine_.member, group::communicator_told{state});
  }

  void communicator_drawn(std::uint64_t number, const std::string& id) override {
    actors::tell(engine_.coordinator, group::communicator_drawn{number, id});
  }

  void snapshots_changed(const std::vector<std::uint64_t>& steps) override {
    actors::tell(engine_.member, group::snapshots_held{steps});
  }

  // ---- from a GPU owner in this process -------------------------------------------------------------------

  void failed(const failure& why) override {
    record_failure(why);
    gave_up(why);
  }

  void slots_released(std::vector<std::uint64_t> uploads) override {
    actors::tell(engine_.scheduler, scheduler::slots_released{std::move(uploads)});
  }

  // ---- from the keeper of an owner in another process -----------------------------------------------------

  void owner_changed(const supervisor::owner_facts& facts) override {
    owner_reports::owner_changed(facts);
    session_.owner_is_irreplaceable_ = facts.irreplaceable;
  }

  // ---- from the scheduler ---------------------------------------------------------------------------------

  void sample_failed(const scheduler::lost_sample& lost) override {
    board_.sample_failed(lost);
    event what = host::event_of_failed(lost);
    if (lost.alike > alike_logged) return session_.tell(std::move(what));
    warn(std::move(what));
    if (lost.alike == alike_logged) log::warn("scheduler", "further samples that fail for this reason are not logged: `penstock events` and --report list them");
  }

  void sample_quarantined(const scheduler::lost_sample& lost) override {
    board_.sample_quarantined(lost);
    // Publish this after the last death that the sample caused, which the supervisor reports.
    actors::tell(engine_.supervisor, supervisor::when_handled{[this, what = host::event_of_quarantined(lost)] { warn(what); }});
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

  void counted(std::uint64_t stale_dropped, std::uint64_t quarantined, const hedge_counts& hedges) override {
    board_.counted(stale_dropped, quarantined, hedges);
  }

  void stream_finished(std::uint64_t seek_number) override { session_.consumer_->finish(seek_number); }

  void answered() override { session_.pulse_.scheduler_answered(); }

  // ---- from the session actor -----------------------------------------------------------------------------

  void planned(std::uint64_t samples, std::shared_ptr<const plan> order, std::shared_ptr<const device::transfer_plan> transfer,
               schedule::stream_range range, const std::string& fingerprint, std::uint32_t slots) override {
    if (session_.group_) {
      session_.group_->delivered = range.first;
      session_.group_->gate->start_at(range.first);
      actors::tell(engine_.member,
                   group::stream_described{session::facts_of(fingerprint, *order, range), range.first});
    }
    const std::uint64_t rest = session::samples_in(*order, range);
    board_.dataset_has(samples);
    board_.planned(session::samples_in(*order, {0, range.end}) - rest, rest, slots);
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
    if (what == event_kind::group_stopping) session_.pause(false, pauser::group);
  }

  void joined() override { actors::tell(engine_.session, session::device_ready{}); }

  void gate_moved() override { actors::tell(engine_.scheduler, scheduler::gate_moved{}); }

  void group_over(group::group_outcome how, const std::optional<group::group_cause>& cause) override {
    session_.group_->over = true;
    if (how == group::group_outcome::failed)
      return gave_up({errc::group_failed, cause ? group::in_words(*cause) : "the group has failed", 0});
    if (how == group::group_outcome::stopped) session_.end_with_group();
  }

  void communicator_ordered(const gpu_owner::communicate& order) override {
    actors::tell(engine_.owner, order);
  }

  void cannot_listen(const std::string& why) override {
    actors::tell(engine_.member, group::cannot_listen{why});
  }
  void peer_refused(const std::string& who) override {
    actors::tell(engine_.member, group::peer_refused{who});
  }
  void member_gone() override {
    session_.pulse_.member_gone();
    session_.ending_.group_actor_gone();
  }
  void coordinator_gone() override { session_.ending_.group_actor_gone(); }

 private:
  void device_ready(const device::identity& what) override {
    if (session_.group_) {  // allocate and start nothing before all ranks are present
      actors::tell(engine_.member, group::join_group{what.uuid.value_or("")});
    } else {
      actors::tell(engine_.session, session::device_ready{});
    }
  }

  void warn(event what) {
    log::warn("scheduler", "{}", what.text);
    session_.tell(std::move(what));
  }

  static constexpr std::uint64_t alike_logged = 10;  // a mistake in a dataset fails every sample

  body& session_;
  host::board& board_;
  engine& engine_;
};

}  // namespace penstock
