#include "tools/penstock/watch/latest_event.hpp"

#include "runtime/base/one_line.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace penstock::cli {
namespace {

constexpr std::array consequences{"device_opened", "memory_attached", "worker_started", "worker_restarted", "worker_ready", "batch_recovered", "epoch_done"};

}  // namespace

void latest_event::hear(const nlohmann::ordered_json& event) {
  if (std::ranges::find(consequences, event.at("kind").get<std::string>()) != consequences.end()) return;
  time_ = text_of(event.at("time"));
  text_ = one_line(text_of(event.at("text")));
}

std::string latest_event::in_words(std::chrono::system_clock::time_point now) const {
  return text_.empty() ? "" : fmt::format("event    {} ago: {}", time_since(time_, now), text_);
}

}  // namespace penstock::cli
