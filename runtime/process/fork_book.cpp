#include "runtime/process/fork_book.hpp"

#include <algorithm>
#include <utility>

namespace penstock::process {

bool fork_book::anybody_waits() const noexcept {
  return std::ranges::any_of(orders_, [](const order& one) { return !one.given_up; });
}

// ---- workers ----------------------------------------------------------------------------------------------

fork_book::number fork_book::add(std::uint32_t worker) {
  orders_.push_back({++last_, worker});
  return last_;
}

std::optional<fork_book::given_up> fork_book::give_up(std::uint32_t worker, steady_time now) {
  const auto it =
      std::ranges::find_if(orders_, [&](const order& one) { return one.worker == worker && !one.given_up; });
  if (it == orders_.end()) return std::nullopt;
  given_up result{it->id, it->sent && now - silent_since_ >= answers_within};
  if (it->sent) {
    it->given_up = true;
  } else {
    orders_.erase(it);
    result.kill = unneeded_ = at_ != stage::ready && !anybody_waits();
  }
  return result;
}

// ---- what to do now ---------------------------------------------------------------------------------------

bool fork_book::must_execute(steady_time now) const noexcept {
  return now >= executes_at();
}

steady_time fork_book::executes_at() const noexcept {
  return at_ == stage::absent && (replace_ || !orders_.empty()) ? next_ : never;
}

std::optional<fork_book::number> fork_book::to_send() const noexcept {
  if (at_ != stage::ready) return std::nullopt;
  const auto it = std::ranges::find(orders_, false, &order::sent);
  return it == orders_.end() ? std::nullopt : std::optional(it->id);
}

// ---- what happened ----------------------------------------------------------------------------------------

void fork_book::sent(number id, steady_time now) noexcept {
  if (std::ranges::none_of(orders_, &order::sent)) silent_since_ = now;
  const auto it = std::ranges::find(orders_, id, &order::id);
  if (it != orders_.end()) it->sent = true;
}

bool fork_book::executed() noexcept {
  at_ = stage::preparing;
  unneeded_ = !std::exchange(replace_, false) && !anybody_waits();
  return !unneeded_;
}

std::vector<fork_book::number> fork_book::not_executed() {
  replace_ = false;
  std::vector<number> over = declined();
  at_ = stage::absent;
  return over;
}

void fork_book::ready() noexcept {
  if (at_ == stage::preparing) at_ = stage::ready;
}

fork_book::meaning fork_book::answered(number id, steady_time now) {
  silent_since_ = now;
  const auto it = std::ranges::find(orders_, id, &order::id);
  if (it == orders_.end()) return meaning::repeated;
  const bool unwanted = it->given_up;
  orders_.erase(it);
  return unwanted ? meaning::given_up : meaning::awaited;
}

std::vector<fork_book::number> fork_book::declined() {
  at_ = stage::declined;
  std::vector<number> waiting;
  for (const order& one : std::exchange(orders_, {}))
    if (!one.given_up) waiting.push_back(one.id);
  return waiting;
}

fork_book::ending fork_book::ended() {
  const bool was_ready = at_ == stage::ready;
  at_ = stage::absent;
  ending result;
  // The template handles orders one by one, so it was working on the oldest order that it had received.
  bool at_one = was_ready;
  for (order& one : std::exchange(orders_, {})) {
    const bool lost = was_ready ? one.sent && std::exchange(at_one, false) : true;
    if (one.given_up) continue;
    if (lost) {
      result.lost.push_back(one.id);
    } else {
      orders_.push_back({one.id, one.worker});
    }
  }
  replace_ = result.counts = was_ready || (result.lost.empty() && !unneeded_);
  return result;
}

}  // namespace penstock::process
