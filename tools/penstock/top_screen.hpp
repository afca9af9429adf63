// What `penstock top` shows, as lines of text. Pure: two answers of the session in, a screen out.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::cli {

struct screen_size {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

/// `before` and `now` are answers to "pipeline"; rates are of the time between them (none if they are the
/// same). `event` is the last thing that happened. Never more lines or columns than there are; with colours,
/// escape sequences come on top.
[[nodiscard]] std::vector<std::string> top_screen(const nlohmann::ordered_json& before,
                                                  const nlohmann::ordered_json& now, const std::string& event,
                                                  screen_size size, bool colours);

}  // namespace penstock::cli
