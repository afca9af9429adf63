// One log for the runtime: short lines on stderr with a level and the component. A program that embeds
// penstock can redirect the lines. Thread-safe. Logging does not block: lines that stderr does not accept
// within 100 ms (an unread pipe) are dropped and counted.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <utility>

namespace penstock::log {

enum class level { debug, info, warn, error, off };

/// Lines below this level are dropped. The default is info.
void set_level(level lowest);
[[nodiscard]] level current_level() noexcept;

/// The function that receives every line that passes the level from now on. An empty function restores stderr.
using sink = std::function<void(level, std::string_view part, std::string_view line)>;
void set_sink(sink taker);

void write(level severity, std::string_view part, std::string_view line);

template <class... Args>
void debug(std::string_view part, fmt::format_string<Args...> format, Args&&... args) {
  if (current_level() <= level::debug)
    write(level::debug, part, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(std::string_view part, fmt::format_string<Args...> format, Args&&... args) {
  if (current_level() <= level::info)
    write(level::info, part, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(std::string_view part, fmt::format_string<Args...> format, Args&&... args) {
  if (current_level() <= level::warn)
    write(level::warn, part, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(std::string_view part, fmt::format_string<Args...> format, Args&&... args) {
  if (current_level() <= level::error)
    write(level::error, part, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace penstock::log
