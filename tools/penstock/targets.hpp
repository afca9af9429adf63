// Targets of verbs: worker/3, workers, gpu, scheduler, all. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock::cli {

enum class target_kind : std::uint8_t { worker, workers, gpu, scheduler, all };

struct target {
  target_kind kind = target_kind::all;
  std::uint32_t worker = 0;  ///< only for target_kind::worker

  /// Whether the target includes this worker.
  [[nodiscard]] bool means_worker(std::uint32_t id) const noexcept {
    return kind == target_kind::all || kind == target_kind::workers ||
           (kind == target_kind::worker && worker == id);
  }
  [[nodiscard]] bool means(target_kind what) const noexcept {
    return kind == target_kind::all || kind == what;
  }
};

/// Empty for text that is not a target.
[[nodiscard]] std::optional<target> parse_target(std::string_view text);

/// What `status`, `why` and `describe` take.
inline constexpr std::string_view targets_text = "worker/N, workers, gpu, scheduler, host/NAME/worker/N, all";

}  // namespace penstock::cli
