#include "runtime/group/coordinator_driver.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::group {

coordinator_driver::coordinator_driver(const group_settings& settings, std::string group, steady_time now)
    : settings_(settings), group_(std::move(group)), book_(settings, now) {}

std::vector<coordinator_command> coordinator_driver::advance(steady_time now) {
  using kind = group_event::kind;
  for (group_command& one : book_.advance(now)) {
    if (auto* const order = std::get_if<send_order>(&one)) {
      const auto link = links_.find(order->process);
      if (link != links_.end())
        outbox_.emplace_back(send_over_link{link->second, order->process, std::move(order->order)});
    } else if (const auto* const draw = std::get_if<draw_communicator_id>(&one)) {
      outbox_.emplace_back(*draw);
    } else {
      auto& event = std::get<group_event>(one);
      if (event.what == kind::lost) note_loss(std::move(event), now);
      if (event.what == kind::joined || event.what == kind::back || event.what == kind::replaced)
        waiting_.push_back({{coordinator_news::kind::rank_arrived, std::move(event.text)}});
    }
  }
  may_go_ = find_out_whether_it_may_go();
  note_waiting(may_go_ ? never : now);
  return std::exchange(outbox_, {});
}

/// A session that fails at its start may close before any rank has connected. Its coordinator stays
/// for a while, because the other ranks must learn why the group failed.
bool coordinator_driver::find_out_whether_it_may_go() const {
  if (!leaving_since_) return false;
  if (!links_.empty()) return book_.may_leave();
  return address_taken_by_others_ || book_.ran() - *leaving_since_ >= settings_.end_grace;
}

void coordinator_driver::reported(link_id link, const member_report& report, steady_time now) {
  links_[report.card.process] = link;
  processes_[link] = report.card.process;
  book_.heard(report, now);
}

/// The process may connect again. It is gone when its last link has closed.
void coordinator_driver::closed(link_id link) {
  const auto process = process_at(link);
  if (!process) return;
  if (links_.at(*process) == link) return book_.link_closed(*process);
  processes_.erase(link);
}

void coordinator_driver::process_ended(link_id link, steady_time now) {
  if (const auto process = process_at(link)) book_.gone(*process, process_has_ended, now);
  processes_.erase(link);
}

void coordinator_driver::held(link_id link, steady_time now) {
  if (const auto process = process_at(link)) book_.held(*process, now);
}

std::optional<std::uint64_t> coordinator_driver::process_at(link_id link) const {
  const auto process = processes_.find(link);
  return process == processes_.end() ? std::nullopt : std::optional(process->second);
}

void coordinator_driver::listening(const std::string& where) {
  address_taken_by_others_ = false;
  note(coordinator_news::kind::meets, fmt::format("the group '{}' meets at {}", group_, where));
}

void coordinator_driver::not_listening(const std::string& why) {
  address_taken_by_others_ = true;
  note(coordinator_news::kind::cannot_meet,
       fmt::format("the ranks of the group '{}' cannot meet yet: {}", group_, why));
}

void coordinator_driver::unknown_peer(const std::string& who) {
  note(coordinator_news::kind::refused, fmt::format("the group '{}' refused {}", group_, who));
  book_.refused(who);
}

void coordinator_driver::communicator_drawn(std::uint64_t number, std::string id) {
  book_.communicator_id(number, std::move(id));
}

void coordinator_driver::leave(steady_time now) {
  if (!leaving_since_) leaving_since_ = book_.look(now);
}

namespace {

constexpr std::size_t told_ends_kept = 64;

}  // namespace

void coordinator_driver::ended(told_end end) {
  const auto loss = std::ranges::find_if(waiting_, [&end](const waiting_news& one) { return one.rank == end.rank && one.pid == end.pid; });
  if (loss != waiting_.end()) {
    loss->news.text += ": " + end.how;
    loss->until = {};
    return;
  }
  if (told_.size() >= told_ends_kept) told_.erase(told_.begin());
  told_.push_back(std::move(end));
}

void coordinator_driver::note_loss(group_event&& event, steady_time now) {
  waiting_news loss{{coordinator_news::kind::rank_lost, std::move(event.text)}, event.rank, event.pid};
  const auto known = std::ranges::find_if(told_, [&loss](const told_end& one) { return one.rank == loss.rank && one.pid == loss.pid; });
  if (known != told_.end()) {
    loss.news.text += ": " + known->how;
    told_.erase(known);
  } else if (expects_ends_ && event.has_ended) {
    loss.until = now + told_within;
  }
  waiting_.push_back(std::move(loss));
}

/// News keeps its order: while earlier news waits, later news waits, too.
void coordinator_driver::note_waiting(steady_time now) {
  for (; !waiting_.empty() && waiting_.front().until <= now; waiting_.pop_front()) outbox_.emplace_back(std::move(waiting_.front().news));
}

void coordinator_driver::note(coordinator_news::kind what, std::string text) {
  outbox_.emplace_back(coordinator_news{what, std::move(text)});
}

}  // namespace penstock::group
