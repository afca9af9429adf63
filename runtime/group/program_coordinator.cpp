#include "runtime/group/program_coordinator.hpp"

#include "runtime/base/log.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <variant>

namespace penstock::group {
namespace {

steady_time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

program_coordinator::program_coordinator(const group_settings& settings, std::string name,
                                         communicator_keeper* communicator)
    : name_(std::move(name)),
      communicator_(communicator),
      book_(settings, now()),
      collectives_(settings.world_size),
      seats_(settings.world_size) {}

result<void> program_coordinator::listen(boost::asio::io_context& io, const link_settings& links,
                                         const std::function<void()>& step) {
  coordinator_listener::callbacks calls;
  calls.report = [this, step](link_id link, const member_report& report) {
    hear(link, report);
    step();
  };
  calls.attachment = [this, step](link_id link, const std::string& bytes) {
    hear_collectives(link, bytes);
    step();
  };
  calls.closed = [this](link_id link, const std::string&) { forget_unless_last(link); };
  calls.process_ended = [this, step](link_id link) {
    lose_process(link);
    step();
  };
  calls.listening = [this](const std::string& where) {
    log::info("group", "the group '{}' meets at {}", name_, where);
  };
  calls.not_listening = [this](const std::string& why) {
    log::warn("group", "the ranks of '{}' cannot meet yet: {}", name_, why);
  };
  calls.stranger = [this](const stranger_news& news) {
    log::warn("group", "the group '{}' has refused {} ({}): {}", name_, news.peer, name_of(news.kind),
              news.text);
  };
  auto made = coordinator_listener::make(io, links, std::move(calls));
  if (!made) return tl::unexpected(std::move(made.error()));
  listener_ = std::move(*made);
  return {};
}

void program_coordinator::step() {
  for (group_command& one : book_.advance(now())) {
    if (auto* const order = std::get_if<send_order>(&one)) follow(std::move(*order));
    if (const auto* const event = std::get_if<group_event>(&one)) tell(*event);
    if (const auto* const wanted = std::get_if<draw_communicator_id>(&one)) to_draw_ = wanted->number;
  }
  draw_unless_one_leaves();
  answer();
}

void program_coordinator::drawn(std::uint64_t number, const std::string& id) {
  book_.communicator_id(number, id);
  step();
}

std::optional<std::string> program_coordinator::wrong() const {
  const auto& found = collectives_.wrong();
  if (!found) return std::nullopt;
  return fmt::format("rank {}: {}", found->rank, found->what);
}

void program_coordinator::tell(const group_event& event) const {
  using what = group_event::kind;
  const bool of_a_rank = event.what == what::joined || event.what == what::back ||
                         event.what == what::replaced || event.what == what::lost;
  if (of_a_rank) log::info("group", "{}: {}", name_, event.text);
}

void program_coordinator::hear(link_id link, const member_report& report) {
  peer& p = peers_[report.card.process];
  p.rank = report.card.rank;
  p.link = link;
  p.leaves = p.leaves || report.stream_over;
  processes_[link] = report.card.process;
  book_.heard(report, now());
}

void program_coordinator::hear_collectives(link_id link, const std::string& bytes) {
  const auto process = processes_.find(link);
  if (process == processes_.end()) return;
  auto said = decode_collective_report(bytes, static_cast<std::uint32_t>(seats_.size()));
  if (!said) return log::warn("group", "{}: {}", name_, said.error().message);
  peer& p = peers_[process->second];
  p.said = std::move(*said);
  if (p.rank < seats_.size() && seats_[p.rank] == process->second)
    collectives_.heard(p.rank, *p.said, p.leaves);
}

/// The group's book says which process has a rank: only its words count.
void program_coordinator::follow(send_order order) {
  const auto found = peers_.find(order.process);
  if (found == peers_.end()) return;
  peer& p = found->second;
  if (order.order.standing == rank_standing::member && seats_.at(p.rank) != order.process) {
    seats_[p.rank] = order.process;
    collectives_.replaced(p.rank);
    if (p.said) collectives_.heard(p.rank, *p.said, p.leaves);
  }
  p.told = std::move(order.order);
  send(order.process, p);
}

void program_coordinator::send(std::uint64_t process, peer& p) {
  collective_answer answer;
  if (p.rank < seats_.size() && seats_[p.rank] == process)
    answer = {collectives_.answer_for(p.rank), collectives_.awaited_by(p.rank)};
  p.answered = answer.result;
  listener_->send(p.link, *p.told, encode(answer));
}

/// A communicator needs all ranks: where one has left, no other is made.
void program_coordinator::draw_unless_one_leaves() {
  if (!to_draw_) return;
  for (const std::uint64_t process : seats_) {
    const auto found = peers_.find(process);
    if (found != peers_.end() && found->second.leaves) return;
  }
  communicator_->draw(*std::exchange(to_draw_, std::nullopt));
}

/// Results leave at once, with the order that their rank had last.
void program_coordinator::answer() {
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    const auto found = peers_.find(seats_[rank]);
    if (found == peers_.end() || !found->second.told) continue;
    const auto result = collectives_.answer_for(rank);
    if (result && result != found->second.answered) send(found->first, found->second);
  }
}

/// What says of a process that it has ended is the end of its last link.
void program_coordinator::forget_unless_last(link_id link) {
  const auto process = processes_.find(link);
  if (process != processes_.end() && peers_.at(process->second).link != link) processes_.erase(process);
}

void program_coordinator::lose_process(link_id link) {
  const auto process = processes_.find(link);
  if (process == processes_.end()) return;
  book_.gone(process->second, "its process has ended", now());
  processes_.erase(process);
}

}  // namespace penstock::group
