// Makes it expensive to guess a secret. Otherwise an attacker who records the first message of a link
// could try a list of sentences against that record, unnoticed. Used when a session or program joins
// a group over the network.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>

namespace penstock::group {

/// 32 bytes, the same for the same arguments: scrypt with N = 2^15, r = 8, p = 3. So each guess costs 32 MiB and
/// about a quarter of a second of a core. Because of `salt`, a precomputed list of guesses works for one
/// salt only. Opens OpenSSL. Refuses (errc::config) if there is none, or if it has no scrypt. Blocks for
/// that quarter of a second.
[[nodiscard]] result<std::string> stretched(std::string_view secret, std::string_view salt);

}  // namespace penstock::group
