#include "runtime/group/member_book.hpp"

#include "runtime/base/units.hpp"

#include <fmt/core.h>

namespace penstock::group {

using progress = communicator_state::how;

member_book::member_book(member_settings settings, std::uint64_t steps, steady_time now)
    : settings_(std::move(settings)), clock_(now, settings_.look_every()), since_(now) {
  said_.card = settings_.card;
  said_.steps = steps;
}

std::vector<member_command> member_book::advance(steady_time now) {
  clock_.look(now);
  if (ended_) return {};
  if (said_.failed && !failing_since_) failing_since_ = clock_.ran();
  tend_communicator();
  const std::optional<end_rank> end = find_end();
  if (changed_ || !sent_at_ || clock_.ran() - *sent_at_ >= settings_.beat()) send(now);
  if (end) {
    ended_ = true;
    outbox_.emplace_back(*end);
  }
  return std::exchange(outbox_, {});
}

void member_book::send(steady_time now) {
  changed_ = false;
  sent_at_ = clock_.ran();
  ++said_.number;
  said_.view = view_;
  said_.lapsed = now >= may_until_;
  sent_.push_back({said_.number, now, clock_.stood_still()});
  while (now - sent_.front().at > settings_.lost_after) sent_.pop_front();
  outbox_.emplace_back(send_report{said_});
}

void member_book::heard(const group_order& order, steady_time now) {
  if (ended_) return;
  clock_.look(now);
  const bool from_another = order.view.coordinator != view_.coordinator;
  if (order.view.generation == 0) {
    // This is a new coordinator that does not know enough yet, or never will.
    heard_at_ = clock_.ran();
    note_coordinator(order);
    // A lapsed right may have passed to another process of this rank; only a coordinator that has heard from
    // that process knows.
    if (now < may_until_) prolong(order.heard);
    if (order.view.outcome != group_outcome::none && view_.outcome == group_outcome::none) {
      view_.outcome = order.view.outcome;
      view_.cause = order.view.cause;
      changed_ = true;
    } else if (order.standing == rank_standing::refused && view_.outcome == group_outcome::none) {
      own_end_ = mine(order.refusal);
    }
  } else if (order.view.generation > view_.generation ||
             (order.view.generation == view_.generation && !from_another && order.number > told_.number)) {
    follow(order);
  }
  if (order.everybody_knows && view_.outcome != group_outcome::none) everybody_knows_ = true;
  if (view_.outcome != group_outcome::none && !knows_since_) knows_since_ = clock_.ran();
}

void member_book::follow(const group_order& order) {
  heard_at_ = clock_.ran();
  note_coordinator(order);
  told_.number = order.number;
  if (order.standing == rank_standing::refused) {
    // If the group is over, even a refused rank learns how it ended.
    if (order.view.outcome == group_outcome::none) own_end_ = mine(order.refusal);
  }
  // Report at once: if this coordinator dies, the next one learns from the reports what was settled.
  changed_ = changed_ || view_ != order.view;
  const group_outcome known = view_.outcome;
  const std::optional<group_cause> cause = view_.cause;
  view_ = order.view;
  if (known != group_outcome::none) {  // the first outcome is final
    view_.outcome = known;
    view_.cause = cause;
  }
  if (order.standing == rank_standing::waiting || order.standing == rank_standing::refused) {
    may_until_ = {};  // another process has the rank, even if a different coordinator gave the rank to this process
    return;
  }
  prolong(order.heard);
  if (order.incarnation != 0) said_.incarnation = order.incarnation;
  told_.go = order.go;
  told_.communicator = order.communicator;
  if (view_.phase == group_phase::stopping && !std::exchange(said_.frozen, true)) changed_ = true;
}

void member_book::note_coordinator(const group_order& order) {
  // After the end, a process that delivers the rest alone keeps its place even if it is silent. It loses the
  // place only to another process.
  const bool keeps_place = delivers_the_rest() && order.standing == rank_standing::lost;
  told_.counted = order.heard > 0 || keeps_place;
  for (const sent_report& one : sent_) {
    if (one.number == order.heard) stood_still_answered_ = one.stood_still;
  }
  if (order.host.empty()) return;
  rank_0_.host = order.host;
  rank_0_.pid = order.pid;
}

void member_book::prolong(std::uint64_t answered) {
  for (const sent_report& one : sent_) {
    if (one.number == answered) may_until_ = std::max(may_until_, one.at + settings_.lost_after);
  }
  while (!sent_.empty() && sent_.front().number < answered) sent_.pop_front();
}

void member_book::tend_communicator() {
  using act = communicator_order::act;
  const communicator_order& told = told_.communicator;
  communicator_state& own = said_.communicator;
  const bool clean = own.at == progress::none || own.at == progress::aborted;
  const bool over = view_.outcome != group_outcome::none;
  const bool unwanted = (told.what == act::abort && told.number >= own.number) ||
                        (told.what == act::make && told.number > own.number) || over;
  if (!clean && unwanted && own.at != progress::aborting) {
    own.at = progress::aborting;
    changed_ = true;
    outbox_.emplace_back(abort_communicator{own.number});
  }
  if (clean && !over && told.what == act::make && told.number > own.number) {
    own = {told.number, progress::making, {}};
    changed_ = true;
    outbox_.emplace_back(make_communicator{told.number, told.id});
  }
}

std::optional<end_rank> member_book::find_end() {
  const steady_time now = clock_.ran();
  if (own_end_) return end_rank{group_outcome::failed, own_end_};
  const bool alone = delivers_the_rest();
  if (view_.outcome != group_outcome::none && !alone) {
    const bool stays = knows_since_ && now - *knows_since_ < settings_.end_grace && !everybody_knows_;
    // A failure needs no confirmation: the report sent now says that this rank knows.
    if (view_.outcome != group_outcome::failed && stays) return std::nullopt;
    return end_rank{view_.outcome, view_.cause};
  }
  if (said_.left) return end_rank{group_outcome::stopped, std::nullopt};
  if (failing_since_ && now - *failing_since_ >= settings_.end_grace)
    return end_rank{group_outcome::failed, said_.failed};
  if (alone) return std::nullopt;
  if (view_.generation == 0) {
    const bool hears = heard_at_ && now - *heard_at_ <= settings_.lost_after;
    // Rank 0 names the missing ranks, so this rank waits until rank 0 has had time to do so.
    const nanoseconds patience = settings_.join_timeout + (hears ? 2 * settings_.lost_after : nanoseconds(0));
    if (now - since_ <= patience) return std::nullopt;
    return give_up(unreachable());
  }
  const nanoseconds patience = settings_.waits_for_lost ? settings_.rejoin_timeout : settings_.lost_after;
  if (!heard_at_ || now - *heard_at_ <= patience) return std::nullopt;
  std::string cause = fmt::format("nothing heard from it for {}", duration_as_config(patience));
  return give_up(was_missed() ? mine(std::move(cause)) : of_rank_0(std::move(cause)));
}

/// The last report contains the reason, so the others report the same cause.
end_rank member_book::give_up(group_cause cause) {
  said_.failed = std::move(cause);
  changed_ = true;
  return {group_outcome::failed, said_.failed};
}

/// Whether this process was suspended for so long that the others declared it lost: nobody has answered it since,
/// and rank 0 has closed the link. An open but silent link means that rank 0 was suspended, too.
bool member_book::was_missed() const {
  return link_.closed &&
         clock_.stood_still() - stood_still_answered_ > settings_.lost_after - 2 * settings_.beat();
}

group_cause member_book::mine(std::string cause) const {
  return {settings_.card.rank, settings_.card.host, settings_.card.pid, std::move(cause)};
}

group_cause member_book::of_rank_0(std::string cause) const {
  return {0, rank_0_.host, rank_0_.pid, std::move(cause)};
}

/// The cause of a failure to reach rank 0, with the reason if this rank knows one.
group_cause member_book::unreachable() const {
  const std::string within = duration_as_config(settings_.join_timeout);
  const std::string& why = link_.no_address.empty() ? link_.no_link : link_.no_address;
  std::string reason = why.empty() ? "" : ": " + why;
  if (!link_.refused_last.empty()) reason += "; refused: " + link_.refused_last;
  if (settings_.card.rank != 0)
    return of_rank_0(
        fmt::format("cannot be reached by {} within {}{}", name_of(settings_.card), within, reason));
  if (!link_.no_address.empty())
    return mine(fmt::format("cannot listen for the other ranks within {}{}", within, reason));
  return mine(
      fmt::format("cannot connect to its own address, where the group meets, within {}{}", within, reason));
}

void member_book::coordinator_gone(const std::string& why) {
  if (settings_.waits_for_lost || ended_ || view_.outcome != group_outcome::none || view_.generation == 0)
    return;
  own_end_ = of_rank_0(why);
}

void member_book::coordinator_held(steady_time now) {
  if (heard_at_) heard_at_ = clock_.look(now);
}

void member_book::link_made() {
  link_.no_link.clear();
  link_.closed = false;
}

void member_book::link_lost(std::string why, bool closed) {
  changed_ = true;
  link_.no_link = std::move(why);
  link_.closed = link_.closed || closed;
}

void member_book::cannot_listen(std::string why) {
  link_.no_address = std::move(why);
}

void member_book::peer_refused(std::string who) {
  link_.refused_last = std::move(who);
}

void member_book::report_again() {
  changed_ = true;
}

void member_book::described(stream_facts facts) {
  said_.facts = std::move(facts);
  changed_ = true;
}

void member_book::delivered(std::uint64_t steps) {
  said_.steps = steps;
  if (view_.limit && steps >= *view_.limit) changed_ = true;
}

void member_book::stream_ended() {
  changed_ = changed_ || !said_.stream_over;
  said_.stream_over = true;
}

void member_book::want_stop() {
  changed_ = changed_ || !said_.stop_wanted;
  said_.stop_wanted = true;
}

void member_book::leave() {
  changed_ = changed_ || !said_.left;
  said_.left = true;
}

void member_book::fail(std::string why) {
  if (said_.failed) return;
  said_.failed = mine(std::move(why));
  changed_ = true;
}

void member_book::begins_at(std::uint64_t step) {
  said_.settled = step;
  changed_ = true;
}

void member_book::held(std::vector<std::uint64_t> steps) {
  if (said_.held == steps) return;
  said_.held = std::move(steps);
  changed_ = true;
}

void member_book::communicator_made(std::uint64_t number) {
  if (number != said_.communicator.number || said_.communicator.at != progress::making) return;
  said_.communicator.at = progress::made;
  changed_ = true;
}

void member_book::communicator_broken(std::uint64_t number, std::string cause) {
  communicator_state& own = said_.communicator;
  if (number != own.number || (own.at != progress::making && own.at != progress::made)) return;
  own.at = progress::broken;
  own.cause = std::move(cause);
  changed_ = true;
}

void member_book::communicator_aborted(std::uint64_t number) {
  if (number != said_.communicator.number || said_.communicator.at != progress::aborting) return;
  said_.communicator.at = progress::aborted;
  changed_ = true;
}

bool member_book::delivers_the_rest() const noexcept {
  // If steps need all ranks, this rank cannot take any: the others have finished.
  return view_.outcome == group_outcome::finished && told_.counted && !said_.stream_over &&
         !settings_.communicator && !settings_.needs_others;
}

bool member_book::may_communicate() const noexcept {
  const communicator_order& told = told_.communicator;
  return told.what == communicator_order::act::use && said_.communicator.at == progress::made &&
         told.number == said_.communicator.number;
}

bool member_book::may_hand_out(steady_time now) const {
  const auto r = right();
  return r && now < r->until && (!r->limit || said_.steps < *r->limit);
}

std::optional<hand_out_right> member_book::right() const {
  if (ended_ || own_end_ || said_.failed || said_.left || said_.stream_over) return std::nullopt;
  if (delivers_the_rest()) return hand_out_right{never, std::nullopt};
  if (!told_.go || view_.outcome != group_outcome::none) return std::nullopt;
  // A restarted process only counts agreed steps and does not take them again, so they need no other rank.
  if (settings_.communicator && !may_communicate() && view_.phase == group_phase::running &&
      said_.steps < view_.agreed)
    return hand_out_right{may_until_, view_.agreed};
  if (settings_.communicator && !may_communicate()) return std::nullopt;
  if (view_.phase == group_phase::stopping) {
    if (!view_.limit) return std::nullopt;
    return hand_out_right{may_until_, view_.limit};
  }
  if (view_.phase != group_phase::running || said_.frozen) return std::nullopt;
  return hand_out_right{may_until_, std::nullopt};
}

}  // namespace penstock::group
