// Contract checks for penstock's own bugs: a failed check aborts the process with the values seen, and the
// supervisor starts a new one. For anything that a user, a peer process or the operating system can cause,
// use result.hpp instead.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace penstock {

[[noreturn]] void contract_violated(const char* file, int line, const char* condition,
                                    std::string_view values);

}  // namespace penstock

/// PENSTOCK_CHECK(slot < slots, "slot {} of {}", slot, slots):
/// formats the message only if the check fails.
#define PENSTOCK_CHECK(condition, ...)                                                           \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::penstock::contract_violated(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
