// Decides which failures of a repeated attempt are logged. Pure; used by loader_host and host_caller.
#pragma once

#include "runtime/base/clock.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace penstock::hosts {

class trouble_filter {
 public:
  /// Whether to log this: the text differs from the last logged one, which is also at least a second old. Comparing the texts is
  /// not enough: they often differ only in a port.
  [[nodiscard]] bool is_news(const std::string& text, steady_time now) {
    if (text == last_ || (logged_ && now - *logged_ < std::chrono::seconds(1))) return false;
    last_ = text;
    logged_ = now;
    return true;
  }
  /// Call when an attempt has succeeded: the same text is news again.
  void forget() { last_.clear(); }

 private:
  std::string last_;
  std::optional<steady_time> logged_;
};

}  // namespace penstock::hosts
