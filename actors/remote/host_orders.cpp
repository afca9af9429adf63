// The hub's answers to operators' questions and orders about loader hosts.
#include "actors/remote/host_hub.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"

#include <algorithm>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

host_status status_of(const host_view& view, const host_records& records, steady_time when) {
  host_status one;
  one.name = view.card.name;
  one.address = view.card.address;
  one.pid = view.card.pid;
  one.state = view.leaving ? "draining" : "ready";
  one.workers = view.places;
  one.samples_per_second = view.samples_per_second;
  one.bytes_per_second = view.bytes_per_second;
  one.round_trip_seconds = std::chrono::duration<double>(view.round_trip).count();
  one.version = view.card.version;
  one.cores = view.card.cores;
  one.workers_offered = view.card.workers;
  one.workers_wanted = view.wanted;
  one.joined = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(when - view.joined);
  one.cpu_cores = records.cores_of(view.card);
  return one;
}

}  // namespace

void host_hub::look_later() {
  timer_.expires_after(std::clamp<nanoseconds>(settings_.book.lost_after / 16, 10ms, 250ms));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& status) {
    if (!status && !self->all_closed_) self->look();
  });
}

void host_hub::look() {
  for (const auto& [id, one] : connections_) book_.heard(id, one.connection->last_heard());
  carry_out();
  std::vector<host_status> all;
  std::map<std::uint32_t, std::uint64_t> resident;
  for (const host_view& view : book_.hosts(now())) {
    host_status& one = all.emplace_back(status_of(view, records_, now()));
    for (const std::uint32_t place : view.places) {
      const entry* const of = entry_at(place);
      if (of == nullptr) continue;
      const connection_figures figures = of->connection->figures();
      one.holds += figures.holds;
      resident[place] = figures.resident_bytes;
      of->connection->wants(view.limit);
    }
  }
  looks_ = !all.empty();
  board_->shows(std::move(all), records_, std::move(resident));
  if (looks_) look_later();
}

std::optional<remote_times> host_hub::times_of(std::uint32_t worker) const {
  const entry* const of = entry_at(worker);
  return of == nullptr ? std::nullopt : std::optional(of->connection->figures().times);
}

bool host_hub::send_away(const std::string& name) {
  bool found = false;
  for (const host_view& view : book_.hosts(now())) {
    if (view.card.name != name) continue;
    if (!std::exchange(found, true))
      listener_(event_kind::draining, name, fmt::format("host {} is finishing its batches before it leaves", name));
    log::info("hosts", "loader host {} ({}, pid {}) is asked to leave", name, view.card.address, view.card.pid);
    for (const std::uint32_t place : view.places) {
      if (entry* const of = entry_at(place)) of->connection->order(ask_to_leave{});
    }
  }
  return found;
}

result<void> host_hub::scale(const std::string& name, std::uint32_t workers) {
  const auto all = book_.workers_of(name);
  if (!all) return refuse(errc::usage, "there is no host/{}", name);
  if (workers > *all) return refuse(errc::usage, "host/{} has {}: the number must be 0 to {}", name, counted(*all, "worker"), *all);
  const std::string text = fmt::format("host {}: scaled to {} of its {}", name, workers, counted(*all, "worker"));
  log::info("hosts", "{}", text);
  listener_(event_kind::scaled, name, text);
  book_.scale(name, workers);
  carry_out();
  return {};
}

}  // namespace penstock::hosts
