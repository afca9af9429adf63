#include "runtime/base/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace penstock::log {
namespace {

std::atomic<level> lowest_level{level::info};

spdlog::level::level_enum to_spdlog(level severity) {
  switch (severity) {
    case level::debug: return spdlog::level::debug;
    case level::info: return spdlog::level::info;
    case level::warn: return spdlog::level::warn;
    case level::error: return spdlog::level::err;
    case level::off: break;
  }
  return spdlog::level::off;
}

// Our own logger object: an embedding program may use spdlog for itself, its registry and default logger are
// its own.
// Never destroyed: a static Session logs while the program's static objects go, in whatever order.
spdlog::logger& stderr_logger() {
  static auto* const logger = [] {
    const auto colour =
        std::getenv("NO_COLOR") == nullptr ? spdlog::color_mode::automatic : spdlog::color_mode::never;
    auto made = std::make_unique<spdlog::logger>(
        "penstock", std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(colour));
    made->set_pattern("%H:%M:%S.%e %^%-5l%$ %v");
    made->set_level(spdlog::level::debug);
    made->flush_on(spdlog::level::debug);
    return made.release();
  }();
  return *logger;
}

struct sink_place {
  std::mutex mutex;
  std::shared_ptr<const sink> taker;
};

sink_place& custom_sink() {
  static auto* const place = new sink_place;
  return *place;
}

}  // namespace

void set_level(level lowest) {
  lowest_level.store(lowest, std::memory_order_relaxed);
}
level current_level() noexcept {
  return lowest_level.load(std::memory_order_relaxed);
}

void set_sink(sink taker) {
  auto& place = custom_sink();
  const std::lock_guard hold(place.mutex);
  place.taker = taker ? std::make_shared<const sink>(std::move(taker)) : nullptr;
}

void write(level severity, std::string_view part, std::string_view line) {
  if (severity < current_level()) return;
  std::shared_ptr<const sink> taker;
  {
    auto& place = custom_sink();
    const std::lock_guard hold(place.mutex);
    taker = place.taker;
  }
  if (taker) {
    (*taker)(severity, part, line);
  } else {
    stderr_logger().log(to_spdlog(severity), "{}: {}", part, line);
  }
}

}  // namespace penstock::log
