#include "runtime/group/member_book.hpp"

#include "runtime/base/units.hpp"

#include <fmt/core.h>

namespace penstock::group {

using progress = communicator_state::how;

member_book::member_book(member_settings settings, std::uint64_t steps, steady_time now)
    : settings_(std::move(settings)), since_(now) {
  said_.card = settings_.card;
  said_.steps = steps;
}

std::vector<member_command> member_book::advance(steady_time now) {
  if (ended_) return {};
  if (said_.failed && !failing_since_) failing_since_ = now;
  tend_communicator();
  if (changed_ || !sent_at_ || now - *sent_at_ >= settings_.beat()) {
    changed_ = false;
    sent_at_ = now;
    ++said_.number;
    said_.view = view_;
    said_.lapsed = now >= may_until_;
    sent_.push_back({said_.number, now});
    while (now - sent_.front().at > settings_.lost_after) sent_.pop_front();
    outbox_.emplace_back(send_report{said_});
  }
  find_end(now);
  return std::exchange(outbox_, {});
}

void member_book::heard(const group_order& order, steady_time now) {
  if (ended_) return;
  const bool from_another = order.view.coordinator != view_.coordinator;
  if (order.view.generation == 0) {
    // A new coordinator that has not heard enough, or one that never will.
    heard_at_ = now;
    note_coordinator(order);
    // A right that has lapsed may have gone to another process of this rank: only who has heard from that one knows.
    if (now < may_until_) prolong(order.heard);
    if (order.view.outcome != group_outcome::none && view_.outcome == group_outcome::none) {
      view_.outcome = order.view.outcome;
      view_.cause = order.view.cause;
      changed_ = true;
    } else if (order.standing == rank_standing::refused && view_.outcome == group_outcome::none) {
      own_end_ = mine(order.refusal);
    }
  } else if (order.view.generation > view_.generation ||
             (order.view.generation == view_.generation && !from_another && order.number > orders_heard_)) {
    follow(order, now);
  }
  if (order.everybody_knows && view_.outcome != group_outcome::none) everybody_knows_ = true;
  if (view_.outcome != group_outcome::none && !knows_since_) knows_since_ = now;
}

void member_book::follow(const group_order& order, steady_time now) {
  heard_at_ = now;
  note_coordinator(order);
  orders_heard_ = order.number;
  if (order.standing == rank_standing::refused) {
    // Of a group that is over it still learns how it ended.
    if (order.view.outcome == group_outcome::none) own_end_ = mine(order.refusal);
  }
  // At once: the next coordinator has to find in the reports what this one had settled.
  changed_ = changed_ || view_ != order.view;
  const group_outcome known = view_.outcome;
  const std::optional<group_cause> cause = view_.cause;
  view_ = order.view;
  if (known != group_outcome::none) {  // the first one holds
    view_.outcome = known;
    view_.cause = cause;
  }
  if (order.standing == rank_standing::waiting || order.standing == rank_standing::refused) {
    may_until_ = {};  // another process has the rank, whoever had given it to this one
    return;
  }
  prolong(order.heard);
  if (order.incarnation != 0) said_.incarnation = order.incarnation;
  go_ = order.go;
  told_ = order.communicator;
  if (view_.phase == group_phase::stopping && !std::exchange(said_.frozen, true)) changed_ = true;
}

void member_book::note_coordinator(const group_order& order) {
  // Silence after the end does not take the place from one that delivers the rest by itself; another process does.
  const bool keeps_place = delivers_the_rest() && order.standing == rank_standing::lost;
  counted_ = order.heard > 0 || keeps_place;
  if (order.host.empty()) return;
  rank_0_host_ = order.host;
  rank_0_pid_ = order.pid;
}

void member_book::prolong(std::uint64_t answered) {
  for (const sent_report& one : sent_) {
    if (one.number == answered) may_until_ = std::max(may_until_, one.at + settings_.lost_after);
  }
  while (!sent_.empty() && sent_.front().number < answered) sent_.pop_front();
}

void member_book::tend_communicator() {
  using act = communicator_order::act;
  communicator_state& own = said_.communicator;
  const bool clean = own.at == progress::none || own.at == progress::aborted;
  const bool over = view_.outcome != group_outcome::none;
  const bool unwanted = (told_.what == act::abort && told_.number >= own.number) ||
                        (told_.what == act::make && told_.number > own.number) || over;
  if (!clean && unwanted && own.at != progress::aborting) {
    own.at = progress::aborting;
    changed_ = true;
    outbox_.emplace_back(abort_communicator{own.number});
  }
  if (clean && !over && told_.what == act::make && told_.number > own.number) {
    own = {told_.number, progress::making, {}};
    changed_ = true;
    outbox_.emplace_back(make_communicator{told_.number, told_.id});
  }
}

void member_book::find_end(steady_time now) {
  if (own_end_) return end(group_outcome::failed, own_end_);
  const bool alone = delivers_the_rest();
  if (view_.outcome != group_outcome::none && !alone) {
    const bool stays = knows_since_ && now - *knows_since_ < settings_.end_grace && !everybody_knows_;
    // A failure needs nobody's consent: its report has just said that it knows.
    if (view_.outcome == group_outcome::failed || !stays) end(view_.outcome, view_.cause);
    return;
  }
  if (said_.left) return end(group_outcome::stopped, std::nullopt);
  if (failing_since_ && now - *failing_since_ >= settings_.end_grace)
    return end(group_outcome::failed, mine(*said_.failed));
  if (alone) return;
  if (view_.generation == 0) {
    const bool hears = heard_at_ && now - *heard_at_ <= settings_.lost_after;
    // Rank 0 names who is missing; this rank gives it the time to say so.
    const nanoseconds patience = settings_.join_timeout + (hears ? 2 * settings_.lost_after : nanoseconds(0));
    if (now - since_ > patience) {
      end(group_outcome::failed,
          of_rank_0(fmt::format("cannot be reached by {} within {}", name_of(settings_.card),
                                duration_as_config(settings_.join_timeout))));
    }
    return;
  }
  const nanoseconds patience = settings_.waits_for_lost ? settings_.rejoin_timeout : settings_.lost_after;
  if (heard_at_ && now - *heard_at_ > patience)
    end(group_outcome::failed,
        of_rank_0(fmt::format("nothing heard of it for {}", duration_as_config(patience))));
}

void member_book::end(group_outcome how, std::optional<group_cause> cause) {
  ended_ = true;
  outbox_.emplace_back(end_rank{how, std::move(cause)});
}

group_cause member_book::mine(std::string cause) const {
  return {settings_.card.rank, settings_.card.host, settings_.card.pid, std::move(cause)};
}

group_cause member_book::of_rank_0(std::string cause) const {
  return {0, rank_0_host_, rank_0_pid_, std::move(cause)};
}

void member_book::coordinator_gone(const std::string& why) {
  if (settings_.waits_for_lost || ended_ || view_.outcome != group_outcome::none || view_.generation == 0)
    return;
  own_end_ = of_rank_0(why);
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
  said_.failed = std::move(why);
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
  // Where steps need all ranks there is nobody to take them with.
  return view_.outcome == group_outcome::finished && counted_ && !said_.stream_over &&
         !settings_.communicator && !settings_.needs_others;
}

bool member_book::may_communicate() const noexcept {
  return told_.what == communicator_order::act::use && said_.communicator.at == progress::made &&
         told_.number == said_.communicator.number;
}

bool member_book::may_hand_out(steady_time now) const {
  const auto r = right();
  return r && now < r->until && (!r->limit || said_.steps < *r->limit);
}

std::optional<hand_out_right> member_book::right() const {
  if (ended_ || own_end_ || said_.failed || said_.left || said_.stream_over) return std::nullopt;
  if (delivers_the_rest()) return hand_out_right{never, std::nullopt};
  if (!go_ || view_.outcome != group_outcome::none) return std::nullopt;
  // What is agreed needs no other rank: a process that is started anew only counts it.
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
