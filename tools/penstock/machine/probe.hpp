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

template <class T>
T value_type(const std::optional<T>&);
template <class T>
T value_type(const T&);

/// Takes the values that were reported: take(json, "a", a, "b", b).
template <class T, class... More>
void take(const nlohmann::json& from, const char* key, T& to, More&&... more) {
  if (const auto it = from.find(key); it != from.end() && !it->is_null()) to = it->get<decltype(value_type(to))>();
  if constexpr (sizeof...(more) > 0) take(from, std::forward<More>(more)...);
}

}  // namespace penstock::machine
