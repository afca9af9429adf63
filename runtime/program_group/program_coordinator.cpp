#include "runtime/program_group/program_coordinator.hpp"

#include "runtime/base/log.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <variant>

namespace penstock::group {
namespace {

using clock = std::chrono::steady_clock;

}  // namespace

program_coordinator::program_coordinator(const group_settings& settings, std::string name,
                                         communicator_keeper* communicator)
    : name_(std::move(name)),
      communicator_(communicator),
      driver_(settings, name_, clock::now()),
      collectives_(settings.world_size),
      processes_(settings.world_size) {}

result<void> program_coordinator::listen(boost::asio::io_context& io, const link_settings& links,
                                         const std::function<void()>& step,
                                         const std::function<void(const std::string&)>& cannot_listen,
                                         const std::function<void(const std::string&)>& peer_refused) {
  coordinator_listener::callbacks calls;
  calls.report = [this, step](link_id link, const member_report& report) {
    hear(link, report);
    step();
  };
  calls.attachment = [this, step](link_id link, const std::string& bytes) {
    hear_collectives(link, bytes);
    step();
  };
  calls.closed = [this](link_id link, const std::string&) { driver_.closed(link); };
  calls.process_ended = [this, step](link_id link) {
    driver_.process_ended(link, clock::now());
    step();
  };
  calls.held = [this](link_id link) { driver_.held(link, clock::now()); };
  calls.listening = [this, step, cannot_listen](const std::string& where) {
    driver_.listening(where);
    cannot_listen({});
    step();
  };
  calls.not_listening = [this, step, cannot_listen](const std::string& why) {
    driver_.not_listening(why);
    cannot_listen(why);
    step();
  };
  calls.unknown_peer = [this, step, peer_refused](const unknown_peer_news& news) {
    driver_.unknown_peer(text_of(news));
    peer_refused(text_of(news));
    step();
  };
  auto made = coordinator_listener::make(io, links, std::move(calls));
  if (!made) return tl::unexpected(std::move(made.error()));
  listener_ = std::move(*made);
  return {};
}

void program_coordinator::step() {
  for (coordinator_command& one : driver_.advance(clock::now())) {
    if (auto* const order = std::get_if<send_over_link>(&one)) follow(std::move(*order));
    if (const auto* const news = std::get_if<coordinator_news>(&one)) {
      news->warns() ? log::warn("group", "{}", news->text) : log::info("group", "{}", news->text);
    }
    if (const auto* const wanted = std::get_if<draw_communicator_id>(&one)) to_draw_ = wanted->number;
  }
  draw_unless_one_leaves();
  answer();
}

void program_coordinator::drawn(std::uint64_t number, const std::string& id) {
  driver_.communicator_drawn(number, id);
  step();
}

void program_coordinator::leave() {
  driver_.leave(clock::now());
}

std::optional<std::string> program_coordinator::wrong() const {
  const auto& found = collectives_.wrong();
  if (!found) return std::nullopt;
  return fmt::format("rank {}: {}", found->rank, found->what);
}

void program_coordinator::hear(link_id link, const member_report& report) {
  peer& p = peers_[report.card.process];
  p.rank = report.card.rank;
  p.leaves = p.leaves || report.stream_over;
  driver_.reported(link, report, clock::now());
}

void program_coordinator::hear_collectives(link_id link, const std::string& bytes) {
  const auto process = driver_.process_at(link);
  if (!process) return;
  auto said = decode_collective_report(bytes, static_cast<std::uint32_t>(processes_.size()));
  if (!said) return log::warn("group", "{}: {}", name_, said.error().message);
  peer& p = peers_[*process];
  p.said = std::move(*said);
  if (p.rank < processes_.size() && processes_[p.rank] == *process)
    collectives_.heard(p.rank, *p.said, p.leaves);
}

/// The order comes from the group's book, which decides which process has a rank. Collective
/// reports of other processes do not count.
void program_coordinator::follow(send_over_link order) {
  const auto found = peers_.find(order.process);
  if (found == peers_.end()) return;
  peer& p = found->second;
  if (order.order.standing == rank_standing::member && processes_.at(p.rank) != order.process) {
    processes_[p.rank] = order.process;
    collectives_.replaced(p.rank);
    if (p.said) collectives_.heard(p.rank, *p.said, p.leaves);
  }
  p.told = std::move(order);
  send(p);
}

void program_coordinator::send(peer& p) {
  collective_answer answer;
  if (p.rank < processes_.size() && processes_[p.rank] == p.told->process)
    answer = {collectives_.answer_for(p.rank), collectives_.awaited_by(p.rank)};
  p.answered = answer.result;
  listener_->send(p.told->link, p.told->order, encode(answer));
}

/// A communicator needs all ranks, so none is made once a rank has left.
void program_coordinator::draw_unless_one_leaves() {
  if (!to_draw_) return;
  for (const std::uint64_t process : processes_) {
    const auto found = peers_.find(process);
    if (found != peers_.end() && found->second.leaves) return;
  }
  communicator_->draw(*std::exchange(to_draw_, std::nullopt));
}

/// Sends each new result to its rank at once, attached to a repeat of the rank's last order.
void program_coordinator::answer() {
  for (std::uint32_t rank = 0; rank < processes_.size(); ++rank) {
    const auto found = peers_.find(processes_[rank]);
    if (found == peers_.end() || !found->second.told) continue;
    const auto result = collectives_.answer_for(rank);
    if (result && result != found->second.answered) send(found->second);
  }
}

}  // namespace penstock::group
