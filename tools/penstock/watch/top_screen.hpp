// The screen of `penstock top` as lines of text. Pure: two answers of the session in, a screen out.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::cli {

struct screen_size {
  std::size_t columns = 80;  ///< 0: no limit
  std::size_t rows = 24;
};

/// Answers to "pipeline". Rates cover the time from `before` to `now`, the mean covers the time since `long_before`. If there is one
/// answer only, the rates are those that it reports, over its last 10 s.
struct top_looks {
  const nlohmann::ordered_json& long_before;
  const nlohmann::ordered_json& before;
  const nlohmann::ordered_json& now;
};

/// `event`: latest_event::in_words(), wrapped if lines are free; `first_worker`: how many workers are scrolled off at the top. The worker that the
/// device waits for always comes first. Never exceeds the lines and columns of the screen, not counting
/// escape sequences.
[[nodiscard]] std::vector<std::string> top_screen(const top_looks& looks, const std::string& event,
                                                  screen_size size, std::size_t first_worker, bool colours);

/// How many workers the screen lists, including those scrolled off but not one that is not needed.
[[nodiscard]] std::size_t workers_shown(const nlohmann::ordered_json& now);
/// How many workers fit on a screen. `more_lines`: from more_lines().
[[nodiscard]] std::size_t rows_for_workers(screen_size size, std::size_t more_lines = 0) noexcept;
/// How many lines the loader hosts, with a blank line, and further lines of the limit take.
[[nodiscard]] std::size_t more_lines(const nlohmann::ordered_json& now, screen_size size);
/// The largest `first_worker` that leaves no empty rows at the bottom.
[[nodiscard]] std::size_t last_first_worker(std::size_t workers, screen_size size, std::size_t more_lines = 0) noexcept;

}  // namespace penstock::cli
