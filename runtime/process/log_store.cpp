#include "runtime/process/log_store.hpp"

#include <algorithm>
#include <utility>

namespace penstock::process {
namespace {

// What a line costs in addition to its text: log_line's numbers and strings, rounded. If this did
// not count, a flood of empty lines would take unbounded memory.
constexpr std::size_t line_cost = sizeof(log_line);

}  // namespace

void log_store::close(place& p) {
  if (!std::exchange(p.running, false)) return;
  if (pages ended = std::exchange(p.current, {}); !ended.lines.empty()) p.previous = std::move(ended);
}

void log_store::begin(const std::string& source, std::uint32_t) {
  const std::lock_guard hold(mutex_);
  place& p = places_[source];
  close(p);
  p.current = {};
  p.running = true;
}

void log_store::wrote(const std::string& source, std::uint32_t incarnation, std::string_view text, std::int64_t unix_ms) {
  const std::lock_guard hold(mutex_);
  place& p = places_[source];
  pages& to = p.running ? p.current : p.previous;
  if (!p.running && !to.lines.empty() && to.lines.back().incarnation != incarnation) to = {};  // late lines of a process that has ended
  to.lines.push_back({++p.written, source, incarnation, unix_ms, std::string(text), 0, ++written_});
  to.bytes += text.size() + line_cost;
  while (to.bytes > kept_bytes && to.lines.size() > 1) {
    to.bytes -= to.lines.front().text.size() + line_cost;
    to.lines.pop_front();
  }
}

log_store::passage log_store::pass(const std::string& source, steady_time now) {
  const std::lock_guard hold(mutex_);
  place& p = places_[source];
  const double seconds = std::chrono::duration<double>(now - p.allowance_at).count();
  p.allowance = std::min(passed_burst, p.allowance + std::max(0.0, seconds) * passed_per_second);
  p.allowance_at = now;
  if (p.allowance < 1) {
    ++p.dropped;
    return {};
  }
  p.allowance -= 1;
  return {true, std::exchange(p.dropped, 0)};
}

std::uint64_t log_store::ended(const std::string& source) {
  const std::lock_guard hold(mutex_);
  const auto it = places_.find(source);
  if (it == places_.end()) return 0;
  close(it->second);
  return std::exchange(it->second.dropped, 0);
}

log_answer log_store::read(const log_query& query) const {
  const std::lock_guard hold(mutex_);
  log_answer answer;
  for (const auto& [source, p] : places_) {
    if (!query.source.empty() && query.source != source) continue;
    std::uint64_t after = 0;
    if (query.after) {
      if (const auto seen = query.after->find(source); seen != query.after->end()) after = seen->second;
    }
    const auto collect = [&](const pages& from) {
      for (const log_line& line : from.lines) {
        if (line.number <= after) continue;
        answer.lines.push_back(line);
        if (query.after) answer.lines.back().dropped = line.number - after - 1;
        after = line.number;
      }
    };
    // A follower must see the last lines of a process before the first ones of its successor.
    if (query.previous || query.after || !p.running) collect(p.previous);
    if (!query.previous) collect(p.current);
    answer.seen[source] = p.written;
  }
  std::ranges::sort(answer.lines, {}, &log_line::order);
  if (query.tail && answer.lines.size() > *query.tail) {
    answer.lines.erase(answer.lines.begin(), answer.lines.end() - static_cast<std::ptrdiff_t>(*query.tail));
  }
  return answer;
}

bool log_store::knows(const std::string& source) const {
  const std::lock_guard hold(mutex_);
  return places_.contains(source);
}

}  // namespace penstock::process
