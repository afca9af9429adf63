#include "runtime/hosts/host_book.hpp"

#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto rate_step = 1s;
constexpr auto rate_window = 10s;
constexpr std::size_t names_max = 1000;  // the most names remembered after their hosts are gone

}  // namespace

host_book::host* host_book::host_of(connection_id id) {
  const auto connection = connections_.find(id);
  return connection == connections_.end() ? nullptr : &hosts_.at(connection->second.process);
}

bool host_book::joined(connection_id id, const host_card& card, steady_time now) {
  std::uint32_t place = settings_.first_place;
  for (const auto& [taken, by] : places_) {
    if (taken != place) break;
    ++place;
  }
  if (connections_.contains(id) || place >= settings_.first_place + settings_.places) return false;
  if (connections_.empty()) looked_ = now;  // no host was watched until now
  connections_[id] = {card.process, place, now};
  places_[place] = id;
  const auto [at, is_new] = hosts_.try_emplace(card.process);
  host& of = at->second;
  if (is_new) {
    of.card = card;
    of.joined = now;
    outbox_.emplace_back(host_came{card});
  }
  of.card.workers = card.workers;  // a host that serves several sessions may offer more now
  of.connections.insert(id);
  balance(of);
  // The supervisor must know a resting place, too. It sees the place as emptied by an operator.
  if (!connections_.at(id).rests) return true;
  outbox_.emplace_back(occupy_place{id, place});
  outbox_.emplace_back(rest_place{id, place});
  return true;
}

// ---- how many work --------------------------------------------------------------------------------------------

std::uint32_t host_book::wanted_of(const host& of) const {
  const auto name = names_.find(of.card.name);
  return name != names_.end() && name->second.wanted ? *name->second.wanted : settings_.places;
}

/// Lets as many of the host's connections work as are wanted. If too many work, those in the highest places rest. A
/// working connection is never swapped for a resting one.
void host_book::balance(const host& of) {
  std::map<std::uint32_t, connection_id> working;
  std::map<std::uint32_t, connection_id> resting;
  for (const connection_id id : of.connections) {
    const connection& one = connections_.at(id);
    if (!one.leaving) (one.rests ? resting : working).emplace(one.place, id);
  }
  const std::size_t wanted = wanted_of(of);
  for (; working.size() > wanted; working.erase(std::prev(working.end()))) {
    const auto [place, id] = *working.rbegin();
    connections_.at(id).rests = true;
    outbox_.emplace_back(rest_place{id, place});
  }
  for (auto next = resting.begin(); next != resting.end() && working.size() < wanted; ++next) {
    connections_.at(next->second).rests = false;
    outbox_.emplace_back(occupy_place{next->second, next->first});
    working.insert(*next);
  }
}

std::optional<std::uint32_t> host_book::workers_of(const std::string& name) const {
  std::optional<std::uint32_t> least;
  for (const auto& [process, one] : hosts_) {
    if (one.card.name == name) least = std::min(least.value_or(one.card.workers_of_all), one.card.workers_of_all);
  }
  return least;
}

void host_book::scale(const std::string& name, std::uint32_t workers) {
  remember(name).wanted = workers;
  for (const auto& [process, one] : hosts_) {
    if (one.card.name != name) continue;
    balance(one);
    // This also refills places that an operator has drained, or whose worker died too often.
    for (const connection_id id : one.connections) {
      const connection& working = connections_.at(id);
      if (!working.rests && !working.leaving) outbox_.emplace_back(occupy_place{id, working.place});
    }
  }
}

/// If there are too many names, forgets the one that was used least recently.
host_book::order_for_name& host_book::remember(const std::string& name) {
  order_for_name& found = names_[name];
  found.used = ++names_used_;
  if (names_.size() > names_max)
    names_.erase(std::ranges::min_element(names_, {}, [](const auto& one) { return one.second.used; }));
  return found;
}

// ---- news -------------------------------------------------------------------------------------------------------

void host_book::heard(connection_id id, steady_time when) {
  const auto connection = connections_.find(id);
  if (connection != connections_.end()) connection->second.heard = std::max(connection->second.heard, when);
}

void host_book::answered(connection_id id, nanoseconds round_trip) {
  if (host* of = host_of(id)) of->round_trip = round_trip;
}

void host_book::offers(connection_id id, std::uint32_t workers) {
  if (host* of = host_of(id)) of->card.workers = workers;
}

void host_book::leaving(connection_id id) {
  const auto connection = connections_.find(id);
  if (connection == connections_.end() || std::exchange(connection->second.leaving, true)) return;
  outbox_.emplace_back(vacate_place{id, connection->second.place, false});
  const host& of = hosts_.at(connection->second.process);
  const auto stays = [this](connection_id one) { return !connections_.at(one).leaving; };
  // If the remaining workers are as many as the host offers, the host is moving this worker to another
  // session. A host that leaves still offers all of its workers.
  if (std::ranges::count_if(of.connections, stays) >= of.card.workers) balance(of);
}

void host_book::emptied(connection_id id) {
  const auto connection = connections_.find(id);
  if (connection != connections_.end() && connection->second.leaving) end(id, std::nullopt, "");
}

void host_book::closed(connection_id id, const std::string& why) {
  if (connections_.contains(id)) end(id, loss_cause::closed, why);
}

void host_book::received(connection_id id, std::uint64_t samples, std::uint64_t bytes, steady_time now) {
  host* of = host_of(id);
  if (of == nullptr) return;
  of->spoilt = 0;
  if (of->received.empty() || now - of->received.back().when >= rate_step) of->received.push_back({now, 0, 0});
  of->received.back().samples += samples;
  of->received.back().bytes += bytes;
  while (now - of->received.front().when > rate_window) of->received.pop_front();
}

void host_book::spoilt(connection_id id, bad_transfer kind, const std::string& how) {
  host* of = host_of(id);
  if (of == nullptr || kind == bad_transfer::late || ++of->spoilt < settings_.bad_transfers_max) return;
  const std::string why = fmt::format("{} batches in a row arrived damaged or in the wrong size; the last one: {}", of->spoilt, how);
  const std::set<connection_id> all = of->connections;  // the host ends with its last connection
  for (const connection_id one : all) lose(one, loss_cause::damaged, why);
}

void host_book::lose(connection_id id, loss_cause cause, const std::string& why) {
  outbox_.emplace_back(close_connection{id, why});
  end(id, cause, why);
}

void host_book::end(connection_id id, std::optional<loss_cause> lost, const std::string& why) {
  const connection gone = connections_.at(id);
  connections_.erase(id);
  places_.erase(gone.place);
  if (lost) outbox_.emplace_back(vacate_place{id, gone.place, true});
  if (!lost) outbox_.emplace_back(close_connection{id, ""});
  host& of = hosts_.at(gone.process);
  of.connections.erase(id);
  if (!of.connections.empty()) {
    if (!gone.leaving) balance(of);
    return;
  }
  if (gone.leaving) lost.reset();
  outbox_.emplace_back(host_went{of.card, lost ? why : "", lost});
  hosts_.erase(gone.process);
}

std::vector<book_command> host_book::advance(steady_time now) {
  // Time during which the session did not run says nothing about its hosts.
  if (looked_ && now - *looked_ > settings_.late_look) {
    for (auto& [id, one] : connections_) one.heard += now - *looked_;
  }
  looked_ = now;
  std::vector<connection_id> silent;
  for (const auto& [id, one] : connections_) {
    if (now - one.heard >= settings_.lost_after) silent.push_back(id);
  }
  for (const connection_id id : silent)
    lose(id, loss_cause::silent, fmt::format("it was silent for {}", duration_for_people(settings_.lost_after)));
  return std::exchange(outbox_, {});
}

steady_time host_book::next_deadline() const {
  steady_time due = never;
  for (const auto& [id, one] : connections_) due = std::min(due, one.heard + settings_.lost_after);
  return due;
}

std::optional<connection_id> host_book::connection_at(std::uint32_t place) const {
  const auto at = places_.find(place);
  return at == places_.end() ? std::nullopt : std::optional(at->second);
}

std::vector<host_view> host_book::hosts(steady_time now) const {
  std::vector<host_view> all;
  for (const auto& [process, one] : hosts_) {
    host_view& view = all.emplace_back(
        host_view{one.card, true, {}, 0, 0, one.round_trip, one.joined, std::min(wanted_of(one), one.card.workers), wanted_of(one)});
    for (const connection_id id : one.connections) {
      view.places.push_back(connections_.at(id).place);
      view.leaving &= connections_.at(id).leaving;
    }
    std::ranges::sort(view.places);
    for (const amount& part : one.received) {
      if (now - part.when > rate_window) continue;
      view.samples_per_second += static_cast<double>(part.samples);
      view.bytes_per_second += static_cast<double>(part.bytes);
    }
    if (one.received.empty()) continue;
    // A new host is measured over the time since its first batch.
    const auto since = std::clamp<nanoseconds>(now - one.received.front().when, rate_step, rate_window);
    view.samples_per_second /= std::chrono::duration<double>(since).count();
    view.bytes_per_second /= std::chrono::duration<double>(since).count();
  }
  return all;
}

}  // namespace penstock::hosts
