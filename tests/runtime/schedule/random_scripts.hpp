// Model tests: a small world follows a random script, step by step, until something is violated; then the
// script is shrunk to what is needed for the same violation and printed, to become a test of its own.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {

/// Thrown by a world in which something is not as it has to be.
struct violation {
  std::string what;
};

template <class Act>
struct step {
  Act what{};
  std::uint32_t pick = 0;  ///< taken modulo the choices there are, so that any part of a script is a script
};

template <class Act>
using script_of = std::vector<step<Act>>;

/// Leaves out whatever is not needed for `same` to hold of what remains.
template <class Act>
script_of<Act> shrunk(script_of<Act> script, const std::function<bool(const script_of<Act>&)>& same) {
  for (std::size_t part = script.size() / 2; part > 0; part /= 2) {
    for (std::size_t i = 0; i + part <= script.size();) {
      auto shorter = script;
      const auto first = shorter.begin() + static_cast<std::ptrdiff_t>(i);
      shorter.erase(first, first + static_cast<std::ptrdiff_t>(part));
      if (same(shorter)) {
        script = std::move(shorter);
      } else {
        i += part;
      }
    }
  }
  return script;
}

/// As it is written in a test.
template <class Act>
std::string as_text(const script_of<Act>& script, std::span<const char* const> names) {
  std::string text;
  for (const auto& s : script)
    text += fmt::format("{{act::{}, {}}}, ", names[static_cast<std::size_t>(s.what)], s.pick);
  return text;
}

class random_choice {
 public:
  explicit random_choice(std::uint64_t seed) : bits_(seed) {}
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(bits_() % bound); }

 private:
  std::mt19937_64 bits_;
};

/// PENSTOCK_TEST_SEED repeats a run.
inline std::uint64_t seed_of_this_run() {
  const char* fixed = std::getenv("PENSTOCK_TEST_SEED");
  return fixed != nullptr ? std::strtoull(fixed, nullptr, 10) : std::random_device{}();
}

}  // namespace penstock::testing
