#include "runtime/base/log.hpp"

#include "runtime/base/counted.hpp"

#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

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

// Our own logger object: an embedding program may use spdlog itself, so leave its registry and default logger
// alone. Never destroyed: a static Session may log while static objects are being destroyed.
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

// A paused terminal or an unread pipe must not stop a session: the thread that logs also reads the workers'
// output. A line waits at most this long. If it cannot be written, later lines are dropped without waiting,
// until stderr accepts output again.
constexpr int patience_ms = 100;

class stderr_gate {
 public:
  /// Returns false, and counts the line, if it must be dropped.
  bool opens() {
    pollfd out{STDERR_FILENO, POLLOUT, 0};
    const bool blocked = blocked_.load(std::memory_order_relaxed);
    // If stderr is closed or broken, do not wait: the write fails at once.
    const bool ready = ::poll(&out, 1, blocked ? 0 : patience_ms) != 0;
    blocked_.store(!ready, std::memory_order_relaxed);
    if (!ready) dropped_.fetch_add(1, std::memory_order_relaxed);
    return ready;
  }
  std::uint64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  std::atomic<bool> blocked_{false};
  std::atomic<std::uint64_t> dropped_{0};
};

stderr_gate& gate() {
  static stderr_gate one;
  return one;
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
  } else if (gate().opens()) {
    if (const auto dropped = gate().take_dropped(); dropped > 0) {
      stderr_logger().log(spdlog::level::warn, "log: dropped {}: stderr was not read",
                          counted(dropped, "line"));
    }
    stderr_logger().log(to_spdlog(severity), "{}: {}", part, line);
  }
}

}  // namespace penstock::log
