// How a process introduces itself to its group.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

namespace penstock::group {

inline std::optional<std::string> variable_of_this_process(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

inline std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

/// Two processes of one rank have different numbers. Never 0.
inline std::uint64_t number_of_this_process() {
  std::random_device source;
  const std::uint64_t high = source();
  return (high << 32U | source()) | 1U;
}

}  // namespace penstock::group
