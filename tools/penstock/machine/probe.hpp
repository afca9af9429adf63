// Runs penstock-probe, which uses the driver in another process because a driver may hang or crash.
#pragma once

#include "tools/penstock/machine/throwaway.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace penstock::machine {

/// The facts that a probe printed, merged, and how it ended.
struct probed {
  child_outcome child;
  nlohmann::json told = nlohmann::json::object();
  std::string said;
};

[[nodiscard]] probed probe(const std::vector<std::string>& words, std::chrono::milliseconds deadline);

/// Takes a value if it was reported.
template <class T>
void take(const nlohmann::json& from, const char* key, T& to) {
  if (const auto it = from.find(key); it != from.end() && !it->is_null()) to = it->get<T>();
}
template <class T>
void take(const nlohmann::json& from, const char* key, std::optional<T>& to) {
  if (const auto it = from.find(key); it != from.end() && !it->is_null()) to = it->get<T>();
}

}  // namespace penstock::machine
