// Counts connections that did not become links, and reports them at a bounded rate, however many there are.
// Pure: time is an argument. Used by coordinator_listener.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/group/link_news.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::group {

using unknown_peer_counts = std::array<std::uint64_t, static_cast<std::size_t>(unknown_peer_kind::count)>;

class unknown_peer_tally {
 public:
  static constexpr std::chrono::seconds pause{10};  ///< between news of one kind

  void note(unknown_peer_kind kind, std::string peer, std::string text);
  /// The reports that are due now.
  [[nodiscard]] std::vector<unknown_peer_news> news(steady_time now);
  /// When the next report is due; `never` if none waits.
  [[nodiscard]] steady_time next() const;
  [[nodiscard]] const unknown_peer_counts& counts() const noexcept { return counts_; }

 private:
  struct entry {
    unknown_peer_news waiting{};        // count 0: nothing to report
    std::optional<steady_time> told{};  // when the last report was made
  };
  unknown_peer_counts counts_{};
  std::array<entry, static_cast<std::size_t>(unknown_peer_kind::count)> entries_{};
};

}  // namespace penstock::group
