#include "runtime/group/rank_driver.hpp"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace penstock::group {

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

rank_driver::rank_driver(rank_setup setup, std::uint64_t steps, steady_time now)
    : setup_(std::move(setup)), book_(setup_.member, steps, now) {}

std::vector<member_command> rank_driver::advance(steady_time now) {
  std::vector<member_command> commands;
  book_.look(now);
  if (!refusal_) {
    give_up_communicator();
    commands = book_.advance(now);
  } else if (!end_) {
    const rank_card& own = setup_.member.card;
    commands.emplace_back(
        end_rank{group_outcome::failed, group_cause{own.rank, own.host, own.pid, refusal_->message}});
  }
  for (const member_command& one : commands) {
    const auto* const report = std::get_if<send_report>(&one);
    if (report != nullptr && report->report.stream_over && !last_word_) last_word_ = report->report.number;
    if (const auto* const how = std::get_if<end_rank>(&one)) {
      end_ = *how;
      ended_at_ = book_.ran();
    }
  }
  const group_phase phase = book_.view().phase;
  joined_ =
      joined_ || book_.delivers_the_rest() || (phase != group_phase::gathering && phase != group_phase::over);
  may_go_ = find_out_whether_it_may_go();
  return commands;
}

bool rank_driver::find_out_whether_it_may_go() const {
  if (!leaving_since_) return false;
  if (refusal_) return true;
  if (end_) return book_.ran() - ended_at_ >= linger;
  const member_settings& settings = setup_.member;
  // This rank stays if others may need it. Under "wait", a new process of rank 0 looks for it; with a
  // communicator, unfinished work of other programs may use it.
  const bool is_needed = settings.waits_for_lost || (settings.communicator && settings.needs_others);
  if (is_needed || !last_word_) return false;
  return heard_.heard >= *last_word_ || book_.ran() - *leaving_since_ >= patience_with_answer;
}

void rank_driver::link_made() {
  linked_ = true;
  book_.link_made();
}

void rank_driver::link_lost(link_trouble trouble) {
  linked_ = false;
  book_.link_lost(trouble.why, trouble.closed);
  trouble_ = std::move(trouble.why);
}

void rank_driver::heard(const group_order& order, steady_time now) {
  linked_ = true;
  book_.heard(order, now);
  heard_ = order;
}

void rank_driver::cannot_listen(const std::string& why) {
  book_.cannot_listen(why);
}

void rank_driver::peer_refused(const std::string& who) {
  book_.peer_refused(who);
}

void rank_driver::refuse(failure why) {
  if (!end_) refusal_ = std::move(why);
}

void rank_driver::communicator_changed(const communicator_state& state) {
  using progress = communicator_state::how;
  if (state.at == progress::made) {
    made_ = state.number;
    fruitless_ = 0;
    book_.communicator_made(state.number);
  }
  if (state.at == progress::aborted) book_.communicator_aborted(state.number);
  if (state.at != progress::broken) return;
  book_.communicator_broken(state.number, state.cause);
  if (state.number != made_ && ++fruitless_ == setup_.fruitless_communicators_max)
    book_.fail(fmt::format("creating a communicator failed {} times: {}", fruitless_, state.cause));
}

/// Gives up the communicator `lost_after` after leave(): by then the other programs have had time to
/// finish their work with it.
void rank_driver::give_up_communicator() {
  if (!setup_.member.needs_others || !leaving_since_ || made_ == 0 ||
      book_.ran() - *leaving_since_ < setup_.member.lost_after)
    return;
  book_.communicator_broken(std::exchange(made_, 0), "this rank has left the group");
}

void rank_driver::leave(steady_time now) {
  if (leaving_since_) return;
  leaving_since_ = book_.look(now);
  // A failed rank waits for the group's end instead, so that the other ranks learn why it failed.
  if (!book_.stream_over() && !book_.failed() && !end_) book_.leave();
}

void rank_driver::stop() {
  book_.want_stop();
  if (!linked_ && !book_.failed()) book_.leave();  // there is no coordinator to agree with
}

std::string rank_driver::waits_for(bool hands_out) const {
  if (end_ || (hands_out && !book_.stream_over())) return {};
  if (!linked_) return fmt::format("rank 0 at {}{}", setup_.where, trouble_.empty() ? "" : ": " + trouble_);
  // After this rank has joined, missing ranks are those that have finished.
  if (!joined_ && !lost().empty()) return ranks_text(lost()) + " to arrive";
  switch (book_.view().phase) {
    case group_phase::gathering: return "an answer from rank 0";
    case group_phase::describing: return "the other ranks to describe their datasets";
    case group_phase::stopping: return "all ranks to reach the step at which they stop";
    case group_phase::running: break;
    case group_phase::over: return {};
  }
  if (book_.stream_over()) return "the other ranks to finish";
  const member_settings& settings = setup_.member;
  if (settings.needs_others || !book_.is_in()) return {};  // programs do not hand out batches
  if (settings.communicator && !book_.may_communicate()) return "all ranks to create their communicator";
  return "rank 0 to answer: the right to hand out batches has lapsed";
}

}  // namespace penstock::group
