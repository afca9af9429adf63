#include "runtime/hosts/host_records.hpp"

#include "runtime/base/text.hpp"

#include <algorithm>
#include <array>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t records_max = 512;  // a host may have a new name at each start
constexpr std::array causes{"closed", "silent", "damaged"};  // in the order of loss_cause
constexpr std::size_t name_bytes_max = 64;
constexpr nanoseconds step = 1s;
constexpr nanoseconds window = 10s;

}  // namespace

std::string shown_name(const std::string& name) {
  return printable(shortened(name, name_bytes_max));
}

host_records::entry& host_records::entry_of(const host_card& card) {
  const auto [at, is_new] = records_.try_emplace(shown_name(card.name));
  host_record& record = at->second.record;
  if (is_new) {
    record.name = at->first;
    for (const char* cause : causes) record.losses[cause] = 0;
  }
  record.address = card.address;
  return at->second;
}

void host_records::came(const host_card& card) {
  if (records_.size() >= records_max && !records_.contains(shown_name(card.name))) {
    const auto gone = std::ranges::find_if(records_, [](const auto& one) { return one.second.here == 0; });
    if (gone != records_.end()) records_.erase(gone);
  }
  entry& of = entry_of(card);
  ++of.here;
  processes_.try_emplace(card.process);
  of.lost_at.reset();
}

void host_records::went(const host_card& card, std::optional<loss_cause> lost, const std::string& why, steady_time now) {
  entry& of = entry_of(card);
  of.here -= of.here > 0 ? 1 : 0;
  processes_.erase(card.process);
  if (!lost) return;
  ++of.record.losses[causes.at(static_cast<std::size_t>(*lost))];
  of.record.lost_why = why;
  if (of.here == 0) of.lost_at = now;
}

void host_records::received(const host_card& from, std::uint64_t samples, std::uint64_t bytes) {
  host_record& record = entry_of(from).record;
  record.samples += samples;
  record.bytes += bytes;
}

void host_records::refused(const host_card& from, bad_transfer kind) {
  refused_transfers& counts = entry_of(from).record.refused;
  switch (kind) {
    case bad_transfer::damaged: ++counts.damaged; break;
    case bad_transfer::wrong_size: ++counts.wrong_size; break;
    case bad_transfer::late: ++counts.late; break;
  }
}

void host_records::used(const host_card& of, connection_id connection, nanoseconds total, steady_time now) {
  nanoseconds& before = used_[connection];
  const nanoseconds more = std::max(total - before, nanoseconds(0));
  before = total;
  entry_of(of).record.cpu_seconds += std::chrono::duration<double>(more).count();
  const auto process = processes_.find(of.process);
  if (process == processes_.end()) return;
  std::deque<reading>& readings = process->second;
  if (readings.empty() || now - readings.back().when >= step)
    readings.push_back({now, readings.empty() ? more : readings.back().total + more});
  else
    readings.back().total += more;
  while (now - readings.front().when > window) readings.pop_front();
}

std::optional<double> host_records::cores_of(const host_card& card) const {
  const auto found = processes_.find(card.process);
  if (found == processes_.end() || found->second.size() < 3) return std::nullopt;
  // Skip the newest reading, which is not complete yet.
  const reading& first = found->second.front();
  const reading& last = *std::prev(found->second.end(), 2);
  const std::chrono::duration<double> time = found->second.back().when - std::next(found->second.begin())->when;
  return std::chrono::duration<double>(last.total - first.total).count() / time.count();
}

std::vector<host_record> host_records::all(steady_time now) const {
  std::vector<host_record> all;
  for (const auto& [name, one] : records_) {
    host_record& record = all.emplace_back(one.record);
    record.here = one.here > 0;
    if (one.lost_at) record.lost_seconds = std::chrono::duration<double>(now - *one.lost_at).count();
  }
  return all;
}

}  // namespace penstock::hosts
