// What --sink chooses: "null", "npy", "journal:PATH" or "plugin:PATH". Used by the code that checks, opens, locks or
// names the sink's file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

enum class sink_kind : std::uint8_t { unknown, null, npy, journal, plugin };

struct sink_choice {
  sink_kind kind = sink_kind::unknown;
  std::string path{};  ///< of a journal or a plugin
};

[[nodiscard]] inline sink_choice sink_choice_in(std::string_view text) {
  if (text == "null") return {sink_kind::null};
  if (text == "npy") return {sink_kind::npy};
  const std::size_t path = text.find(':') + 1;  // npos + 1 is 0: the whole text
  const std::string_view prefix = text.substr(0, path);
  if (prefix == "journal:") return {sink_kind::journal, std::string(text.substr(path))};
  if (prefix == "plugin:") return {sink_kind::plugin, std::string(text.substr(path))};
  return {};
}

}  // namespace penstock
