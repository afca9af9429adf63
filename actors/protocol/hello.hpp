// Decides whether a session can work with the program that sent this hello. Pure; used for workers and for
// the GPU owner's process.
#pragma once

#include "actors/protocol/messages.hpp"

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace penstock::protocol {

/// Why the session cannot use the program: `unlike` ("it is not a penstock worker program"), or a text with
/// both versions. Empty if it can.
inline std::string refusal_of(const hello& said, std::string_view unlike) {
  if (said.magic != hello::expected_magic) return std::string(unlike);
  if (said.version == version) return {};
  return fmt::format("it speaks protocol {}, but this session speaks {}", said.version, version);
}

}  // namespace penstock::protocol
