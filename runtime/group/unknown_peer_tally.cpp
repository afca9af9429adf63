#include "runtime/group/unknown_peer_tally.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::group {

const char* name_of(unknown_peer_kind kind) noexcept {
  switch (kind) {
    case unknown_peer_kind::other_user: return "another user";
    case unknown_peer_kind::garbage: return "not a member";
    case unknown_peer_kind::no_secret: return "a secret on one side only";
    case unknown_peer_kind::wrong_secret: return "another secret";
    case unknown_peer_kind::wrong_group: return "another group";
    case unknown_peer_kind::wrong_version: return "another version";
    case unknown_peer_kind::too_slow: return "too slow";
    case unknown_peer_kind::crowded_out: return "too many at once";
    case unknown_peer_kind::count: break;
  }
  return "unknown";
}

std::string text_of(const unknown_peer_news& news) {
  return fmt::format("{} ({}): {}{}", news.peer, name_of(news.kind), news.text,
                     news.count > 1 ? fmt::format(" (x{})", news.count) : "");
}

void unknown_peer_tally::note(unknown_peer_kind kind, std::string peer, std::string text) {
  const auto at = static_cast<std::size_t>(kind);
  ++counts_[at];
  unknown_peer_news& waiting = entries_[at].waiting;
  waiting = {kind, waiting.count + 1, std::move(peer), std::move(text)};
}

std::vector<unknown_peer_news> unknown_peer_tally::news(steady_time now) {
  std::vector<unknown_peer_news> due;
  for (entry& e : entries_) {
    if (e.waiting.count == 0 || (e.told && now < *e.told + pause)) continue;
    e.told = now;
    due.push_back(std::exchange(e.waiting, {}));
  }
  return due;
}

steady_time unknown_peer_tally::next() const {
  steady_time first = never;
  for (const entry& e : entries_) {
    if (e.waiting.count > 0) first = std::min(first, e.told ? *e.told + pause : steady_time::min());
  }
  return first;
}

}  // namespace penstock::group
