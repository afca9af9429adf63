// Lists the existing workers, for the end of a message about a worker that does not exist. Used by the control
// socket and the CLI.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock {

/// "; available: worker/0 to worker/3, worker/64", or "; no worker has been started". `ids` ascend.
[[nodiscard]] inline std::string other_workers(std::span<const std::uint32_t> ids) {
  if (ids.empty()) return "; no worker has been started";
  std::string text = "; available: ";
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t end = i + 1;
    while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text += fmt::format("worker/{}", ids[i]);
    if (end > i + 1) text += fmt::format("{}worker/{}", end == i + 2 ? ", " : " to ", ids[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace penstock
