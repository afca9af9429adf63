// Converts [log] level to the logger's type. Used by the session and by its children.
#pragma once

#include "runtime/base/log.hpp"

#include <penstock/config.hpp>

namespace penstock {

inline log::level as_log_level(log_level level) {
  switch (level) {
    case log_level::debug: return log::level::debug;
    case log_level::info: return log::level::info;
    case log_level::warn: return log::level::warn;
    case log_level::error: return log::level::error;
    case log_level::off: break;
  }
  return log::level::off;
}

}  // namespace penstock
